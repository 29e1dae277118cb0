"""What is said of synthetic pairs is what made them."""

from pathlib import Path

from sealing import manifest_of
from synthetic_lineage import BACK, CLEANED, TAUGHT, cleaned, distilled, mixed

from infra.store.local import LocalStore
from tasks.reporting.about_synthetic import about_synthetic, synthetic_examples


def test_back_translation_is_described_by_number_text_tag_reverse_model_and_search(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    mixed(store)
    text = " ".join(about_synthetic(manifest_of(store, "mix", "m"), store.find))
    for fact in ("2 of 5", "news-de", "<BT>", "average3, seed 3", "7.250", "beam 6"):
        assert fact in text
    sampled = LocalStore(tmp_path / "sampled")
    mixed(sampled, sampling={"seed": 1})
    assert "drawn" in about_synthetic(manifest_of(sampled, "mix", "m"), sampled.find)[-1]


def test_examples_are_synthetic_pairs_alone_beside_their_references(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    corpus = cleaned(store).path() / "pairs.parquet"
    references = {pair_id: target for pair_id, _, target in CLEANED}
    for pairs, expected in ((mixed(store), BACK), (distilled(store), TAUGHT)):
        found = synthetic_examples(pairs.path() / "pairs.parquet", pairs.facts, corpus)
        assert [tuple(row.values()) for row in found] == [(*row, references.get(row[0])) for row in expected]
