"""The page stands alone, escapes what it shows, and shows each set with its protocol."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image
from sealing import Unchecked, sealed, unsealed
from small_training import write_vocabulary

from infra.store.local import LocalStore
from infra.store.store import Artifact
from model.config import Model
from tasks.engine.limits import Limits
from tasks.evaluation.html import Picture
from tasks.evaluation.paper_row import PaperRow
from tasks.stages.report import report
from tasks.stages.score import score

EVIL = '<script>alert("x")</script> & <b>Ein</b> Hund\x00 läuft'
REFERENCES = [f"Ein Hund läuft über Wiese Nummer {n}" for n in range(12)]
HYPOTHESES = [line if n % 4 else EVIL for n, line in enumerate(REFERENCES)]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "source", "br", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def evaluated(folder: Path, name: str) -> dict[str, Artifact]:
    """Pairs, hypotheses and scores of one set, each in a folder."""
    made = {kind: unsealed(folder, kind, name) for kind in ("prepare_sets", "translate", "score")}
    for artifact in made.values():
        artifact.path().mkdir(parents=True)
    ids = [f"{name}:{n}" for n in range(len(REFERENCES))]
    pairs = pl.DataFrame({"pair_id": ids, "source": "A dog runs", "target": REFERENCES})
    pairs.write_parquet(made["prepare_sets"].path() / "pairs.parquet")
    hypotheses = pl.DataFrame({"pair_id": ids, "hypothesis": HYPOTHESES}).with_columns(
        reference_log_probability=pl.lit(-5.0), reference_pieces=pl.lit(9)
    )
    hypotheses.write_parquet(made["translate"].path() / "hypotheses.parquet")
    pieces = {"source_pieces": ["▁A", "▁dog", "</s>"], "hypothesis_pieces": ["▁<i>", "$"]}
    (made["translate"].path() / "attention.json").write_text(json.dumps([{"pair_id": ids[0], **pieces}]))
    sides = {"cross_0": (2, 3), "encoder_0": (3, 3), "decoder_0": (2, 2)}
    weights = {name: np.full((2, 2, *shape), 1 / shape[1], np.float16) for name, shape in sides.items()}
    np.savez(made["translate"].path() / "attention.npz", **weights)  # type: ignore[arg-type]
    score.body(made["score"].path(), made["translate"], made["prepare_sets"], name, "de")
    return made


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def metrics_row(update: int, **values: float) -> str:
    return json.dumps({"time": 1.0, "done": update, "total": 40, **values})


def training(folder: Path) -> Artifact:
    folder.mkdir()
    rows = [metrics_row(n, loss=9 / n, nll=8 / n, learning_rate=n * 1e-4, padding=0.05) for n in range(1, 41)]
    (folder / "metrics.jsonl").write_text(
        "\n".join([*rows, metrics_row(20, dev_perplexity=7.5, encoder_cosine_1=0.3, attention_entropy_1=1.5)]) + "\n"
    )
    shape: dict[str, object] = {"layers": 2, "d_model": 8, "d_ff": 16, "heads": 2, "d_k": 4, "d_v": 4, "p_drop": 0.1}
    shape |= {"norm": "pre", "positions": "sinusoid"}
    (folder / "model.json").write_text(json.dumps({"model": shape, "source_size": 9, "target_size": 9}))
    facts = {"updates": 40, "dev_perplexity": 7.5, "target_tokens": 12_345, "seconds": 75.0, "parameters": 1_234_567}
    return Artifact("train", "run", folder, facts=facts, home=Unchecked(folder))


def data(folder: Path) -> tuple[Artifact, Artifact]:
    """A cleaned corpus and its shards."""
    folder.mkdir()
    removed = pl.DataFrame({"pair_id": ["t:3"], "corpus": "t", "source": [EVIL], "target": ["y"], "filter": ["length"]})
    removed.write_parquet(folder / "rejected.parquet")
    ids = pa.list_(pa.uint16())
    columns = {
        "pair_id": pa.array(["t:0", "t:1"]),
        "source": pa.array([[4, 5], [6]], ids),
        "target": pa.array([[4], [5]], ids),
    }
    with pa.ipc.new_file(str(folder / "00000.arrow"), pa.table(columns).schema) as file:
        file.write_table(pa.table(columns))
    clean = {"read": 90, "pairs": 2, "rejected": 88, "rejected_by": {"length": 17, "empty": 0, "not_in": 71}}
    shards = {"pairs": 2, "dropped": 0, "source_pieces": 3, "target_pieces": 2, "shards": 1}
    return Artifact("clean", "data", folder, facts=clean, home=Unchecked(folder)), Artifact(
        "shard", "data", folder, facts=shards, home=Unchecked(folder)
    )


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    made = {name: evaluated(folder, name) for name in ("val", "test<1>")}
    kinds = ({name: kinds[kind] for name, kinds in made.items()} for kind in ("prepare_sets", "translate", "score"))
    corpus, shards = data(folder / "data")
    (folder / "out").mkdir()
    facts = report.body(folder / "out", "toy & run", corpus, shards, training(folder / "train"), *kinds)
    assert facts == {"bytes": (folder / "out/report.html").stat().st_size, "pictures": 9}
    return folder / "out"


def test_page_needs_nothing_beside_it(out: Path) -> None:
    page = (out / "report.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert not tags.open
    assert not {"script", "link", "iframe", "i"} & {tag for tag, _ in tags.seen}
    for tag, attributes in tags.seen:
        for name in ("src", "srcset"):
            assert (attributes.get(name) or "data:").startswith("data:"), tag
        assert (attributes.get("href") or "#").startswith("#")
    assert "Warning" not in page
    assert not re.search(r"https?://|url\(|@import", page)


def test_the_page_has_one_number_of_rejected_pairs(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert "<dt>pairs rejected</dt><dd>17</dd>" in page
    assert "<dt>pairs of a dev or test set left out</dt><dd>71</dd>" in page
    assert "rejected <b>17</b>" in page


def test_foreign_text_is_escaped_and_printable(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert "alert(" in page
    assert not re.search("<script|<b>Ein", page)
    assert "\x00" not in page
    assert "toy &amp; run" in page
    assert "test&lt;1&gt;" in page


def test_each_number_stands_with_protocol_and_signature(out: Path) -> None:
    page = (out / "report.html").read_text().replace("<wbr>", "")
    for name in ("val", "test<1>"):
        card = json.loads((out.parent / "score" / name / "card.json").read_text())
        for measure in card["scores"].values():
            assert measure["signature"] in page
            assert measure["protocol"] in page
            assert f"{measure['score']:.2f}<small>{measure['low']:.2f} – {measure['high']:.2f}" in page
        assert card["references_sha256"][:16] in page
    assert "1,234,567" in page
    assert "1 min 15 s" in page


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cost most of a page's time."""
    monkeypatch.setattr("tasks.stages.report.draw", lambda alt, _: (Picture(alt, "data:,", "data:,"), b""))


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize(
    ("stage", "facts", "said"),
    [
        ("mix", {"pairs": 5, "synthetic": 2}, "2 of 5 training pairs are synthetic (back-translation)"),
        ("extract_best", {"pairs": 5, "references": 3}, "2 of 5 training pairs are synthetic (distillation)"),
    ],
)
def test_the_paper_s_row_limits_and_synthetic_pairs_have_a_part_of_the_page_where_a_run_has_them(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, facts: dict[str, int], said: str
) -> None:
    parts = ("Against the paper", "Limits of the run", "Synthetic pairs")
    plain = (out / "report.html").read_text()
    assert not [part for part in parts if part in plain]
    limits = Limits.parse(["score.val.bleu >= 20", "warn score.val.chrf >= 60", "score.val.ter <= 1"])
    limits.breaches(Artifact("score", "k", tmp_path, facts={"bleu": 21.5, "chrf": 50}), "val")
    monkeypatch.setattr("tasks.stages.report.checks", lambda: limits.checks)
    pairs = Artifact(stage, "k", tmp_path, facts=facts)
    corpus, shards = data(tmp_path / "data")
    kinds = [{"val": unsealed(out.parent, kind, "val")} for kind in ("prepare_sets", "translate", "score")]
    row = PaperRow("C2", "toy", 8, False, "val", Model(layers=2, d_model=64), 100, 1)
    scored = Artifact("score", "val", tmp_path, facts={"bleu": 30.0, "chrf": 50.0})
    seeds = {"val": dict.fromkeys(("seed-1", "seed-2", "ensemble"), scored)}
    run = training(tmp_path / "train")
    report.body(tmp_path, "toy", corpus, shards, run, *kinds, (row,), seeds, pairs)
    page = (tmp_path / "report.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert not tags.open
    assert not [part for part in (*parts, said) if part not in page]


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize(("source_input", "loss"), [("noise 0.1", "-1.50"), ("lower-cased", "-2.25")])
def test_the_loss_in_a_tile_is_that_of_its_score(out: Path, tmp_path: Path, source_input: str, loss: str) -> None:
    shutil.copytree(out.parent / "score" / "val", tmp_path / "score")
    card = json.loads((tmp_path / "score" / "card.json").read_text())
    losses = {name: {"loss": each, "low": 0.0, "high": 9.0} for name, each in (("bleu", 1.5), ("bleu_lc", 2.25))}
    card |= {"source_input": source_input, "clean_set": "clean", "losses": losses}
    (tmp_path / "score" / "card.json").write_text(json.dumps(card))
    sets, translated = ({"val": unsealed(out.parent, kind, "val")} for kind in ("prepare_sets", "translate"))
    scores = {"val": Artifact("score", "val", tmp_path / "score")}
    report.body(tmp_path, "toy", *data(tmp_path / "data"), training(tmp_path / "train"), sets, translated, scores)
    assert f'<div class="note">{loss} against clean</div>' in (tmp_path / "report.html").read_text()


def test_tokens_and_lengths_are_those_of_the_run_s_shards(out: Path, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    corpus, unnamed = data(tmp_path / "data")
    words = files_in(write_vocabulary(tmp_path / "vocabulary"))
    sealed(store, "v", words, stage="learn_bpe")
    given = {"arguments": {"vocabulary": {"artifact": "learn_bpe", "key": "v"}}, "inputs": {"learn_bpe/v": ""}}
    shards, of_set = (
        sealed(store, key, files_in(unnamed.folder), stage="shard", facts=unnamed.facts, **given)
        for key in ("train", "val")
    )
    translation = files_in(out.parent / "translate/val")
    given = {"arguments": {"pairs": {"artifact": "shard", "key": of_set.key}}, "inputs": {f"shard/{of_set.key}": ""}}
    hypotheses = sealed(store, "val", translation, stage="translate", **given)
    of_earlier_release = tmp_path / "score"
    of_earlier_release.mkdir()
    for name, content in files_in(out.parent / "score/val").items():
        (of_earlier_release / name).write_bytes(content)
    card = json.loads((of_earlier_release / "card.json").read_text())
    del card["scores"]["bleu_sentences"]
    (of_earlier_release / "card.json").write_text(json.dumps(card))
    scores = {"val": unsealed(out.parent, "score", "val"), "old": Artifact("score", "old", of_earlier_release)}
    sets = {"val": unsealed(out.parent, "prepare_sets", "val")}
    run = training(tmp_path / "train")
    report.body(tmp_path, "toy", corpus, shards, run, sets, {"val": hypotheses}, scores)
    rows = pl.read_csv(tmp_path / "tokens.csv").select("side", "id", "token", "count").rows()
    assert rows == [(side, i, f"p{i}", 1) for side, ids in (("source", (4, 5, 6)), ("target", (4, 5))) for i in ids]
    page = (tmp_path / "report.html").read_text()
    assert '<bdi>p6</bdi></td><td class="score">1</td><td class="score">33.33 %' in page
    height = {folder: Image.open(folder / "lengths.png").height for folder in (tmp_path, out)}
    assert height[tmp_path] > height[out], "a panel for the set"
