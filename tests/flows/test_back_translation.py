"""Back-translation in a whole run: what it trains on, and that it is cached."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest
from small_pipeline import run_small, small_run

from flows.inspection.trace import trace_pair
from flows.runner.outcome import Outcome
from flows.runner.request import RunRequest
from flows.runs import RUNS, Run
from flows.runs.synthetic import BackTranslation, monolingual
from infra.site import Site, open_store
from model.config import Decoding
from model.data.bpe import TokenizerPair
from tasks.corpus.catalogue import File, Text
from tasks.demo import corpus as demo_corpus
from tasks.registration.lineage import training_text
from tasks.stages import translate_text

LINES = 36


@pytest.fixture
def run(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``small`` with the 36 further German lines of the demo and all lines of its sets as monolingual text."""
    lines = demo_corpus.content("demo/train.de").split(b"\n")[600 : 600 + LINES]
    for name in ("dev", "test"):
        lines += demo_corpus.content(f"demo/{name}.de").split(b"\n")[:12]
    content = b"\n".join(lines) + b"\n"
    text = Text(File("small/mono.de", sha256=sha256(content).hexdigest()))
    how = BackTranslation(monolingual("mono", "de", {"mono": text}), decoding=Decoding(beam=2, max_extra=60))
    run = small_run(mirror)
    training = replace(run.training, updates=40, checkpoint_every=20, dev_every=40)
    run = replace(run, synthetic=how, training=training)
    (mirror / "small" / "mono.de").write_bytes(content)
    monkeypatch.setitem(RUNS, "small", run)
    monkeypatch.setattr(translate_text, "BLOCK_LINES", 8)
    return run


def made(outcome: Outcome) -> dict[tuple[str, str], Path]:
    return {(row.stage, row.item): Path(row.path) for row in outcome.rows}


@pytest.mark.slow
def test_the_pairs_are_tagged_apart_from_the_sets_and_cached(run: Run) -> None:
    outcome = run_small(RunRequest("small", until="shard"))
    folders = made(outcome)
    blocks = sorted(folders["translate_text", ""].glob("*.parquet"))
    translated = pl.concat([pl.read_parquet(path) for path in blocks])
    sets = pl.concat([pl.read_parquet(folders["prepare_sets", name] / "pairs.parquet") for name in ("dev", "test")])
    assert translated.height == LINES
    assert not set(translated["source"]) & set(sets["target"])

    pairs = pl.read_parquet(folders["mix", ""] / "pairs.parquet")
    clean = pl.read_parquet(folders["clean", ""] / "pairs.parquet")
    synthetic = pairs.filter(pl.col("corpus") == "bt-mono")
    assert pairs.head(clean.height).equals(clean)
    assert synthetic.height == pairs.height - clean.height > 0
    assert synthetic["source"].str.starts_with("<BT> ").all()
    assert not clean["source"].str.contains("<BT>").any()
    assert not pairs["target"].str.contains("<BT>").any()
    assert set(synthetic["target"]) <= set(translated["source"])

    vocabulary = TokenizerPair.load(folders["learn_bpe", ""])
    source = synthetic["source"][0]
    tag = run.vocabulary.size
    assert vocabulary.source_size == tag + 1
    assert vocabulary.encode_source([source]) == [[tag, *vocabulary.encode_source([source.removeprefix("<BT> ")])[0]]]
    shards = pl.scan_ipc(folders["shard", "train"] / "*.arrow").collect()
    tagged = shards.filter(pl.col("source").list.contains(tag))
    assert tagged.height
    assert tagged["pair_id"].str.starts_with("bt-mono:").all()
    assert (tagged["source"].list.first() == tag).all()
    assert (shards.filter(pl.col("pair_id").str.starts_with("bt-"))["source"].list.first() == tag).all()
    assert not shards["target"].list.contains(tag).any()
    for name in ("dev", "test"):
        encoded = pl.scan_ipc(folders["shard", name] / "*.arrow").collect()
        assert not encoded["source"].list.contains(tag).any()

    pair_id = tagged["pair_id"][0]
    steps = trace_pair("small", pair_id).steps
    assert [step.kind for step in steps] == ["published", "cleaned", "mixed", "encoded", "sharded", "missing"]
    assert [steps[2].values["source"], steps[2].values["target"]] == list(
        pairs.row(by_predicate=pl.col("pair_id") == pair_id)[2:]
    )

    again = run_small(RunRequest("small", until="shard"))
    assert {row.state for row in again.rows} == {"cached"}


@pytest.mark.slow
@pytest.mark.usefixtures("run")
def test_synthetic_pairs_train_a_version_that_knows_its_languages() -> None:
    outcome = run_small(RunRequest("small", overrides=("synthetic.lines=20",)))
    facts = {(row.stage, row.item): row.facts for row in outcome.rows}
    assert facts["translate_text", ""]["lines"] == 20
    assert 0 < facts["mix", ""]["synthetic"] == 20 - facts["mix", ""]["untranslated"]
    assert outcome.rows[-1].stage == "register"
    (weights,) = (row for row in outcome.rows if (row.stage, row.item) == ("average", ""))
    store = open_store(Site.named())
    manifest = store.find("average", weights.key)
    assert manifest
    assert training_text(store.artifact(manifest)) == {
        "source_language": "en",
        "target_language": "de",
        "max_pieces": 80,
    }
