"""What is said of synthetic pairs is what made them."""

from pathlib import Path

import pytest
from sealing import manifest_of
from synthetic_lineage import BACK, CLEANED, TAUGHT, cleaned, distilled, mixed

from infra.store.local import LocalStore
from infra.store.store import Store
from tasks.reporting.about_synthetic import about_synthetic, synthetic_examples


def said(store: Store, stage: str, key: str) -> str:
    return " ".join(about_synthetic(manifest_of(store, stage, key), store.find))


@pytest.mark.parametrize(
    ("how", "words"), [({}, "Beam search with beam 6."), ({"sampling": {"seed": 1}}, "were drawn from the model.")]
)
def test_back_translation_is_described_by_number_text_tag_and_reverse_model(
    tmp_path: Path, how: dict[str, object], words: str
) -> None:
    store = LocalStore(tmp_path)
    mixed(store, **how)
    text = said(store, "mix", "m")
    assert "2 of 5 pairs are synthetic (back-translation): the target is a line of news-de" in text
    assert "The tag <BT> begins each of these sources." in text
    assert "Reverse model: average average3, seed 3, last dev perplexity 7.250." in text
    assert "since no translation of them ended: 1." in text
    assert text.endswith(words)


def test_examples_are_synthetic_pairs_alone_beside_their_references(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    corpus = cleaned(store).path() / "pairs.parquet"
    references = {pair_id: target for pair_id, _, target in CLEANED}
    for pairs, expected in ((mixed(store), BACK), (distilled(store), TAUGHT)):
        found = synthetic_examples(pairs.path() / "pairs.parquet", pairs.facts, corpus)
        assert [tuple(row.values()) for row in found] == [(*row, references.get(row[0])) for row in expected]
