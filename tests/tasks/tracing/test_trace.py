"""A trace agrees with the artifacts, names those that are missing, and names the pair that another one repeats."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
import pytest

from infra.errors import BadConfiguration
from infra.store.store import Artifact
from model.data.bpe import TokenizerPair
from tasks.cleaning.filters import Distinct, Filters, LengthRatio
from tasks.corpus.catalogue import EvaluationSet, File, Text
from tasks.stages import clean
from tasks.stages.learn_bpe import Vocabulary, learn_bpe
from tasks.stages.shard import KEEP_EVERY_PAIR, Sharding, shard
from tasks.tracing.steps import (
    Cleaned,
    Decoded,
    Dropped,
    Encoded,
    Missing,
    PairTrace,
    Published,
    RuleVerdict,
    Sharded,
    Trained,
)
from tasks.tracing.trace import TraceContext, trace
from tests.tasks.stages.test_clean import DEMO_RULES, corpus_of

LONG = " ".join(["dogs"] * 50)
MANY = "Und das sind sehr viele Wörter für eine Katze."
FIRST = (
    ["The dog runs.", "One cat.", " A\tman sings. ", "The dog runs.", LONG, "Known line here."],
    ["Der Hund läuft.", MANY, "Ein Mann singt.", "Der Hund läuft.", LONG.replace("dogs", "Hund"), "Etwas anderes."],
)
SECOND = (["The dog runs.", "Two men sing."], ["Der Hund läuft.", "Zwei Männer singen."])
SET = [("A line of it.", "Eine Zeile."), ("Known  line here.", "Bekannte Zeile.")]

Kind = TypeVar("Kind")


class FakeNetwork:
    """Returns its arguments."""

    def batched(self, training: Artifact, shards: Artifact, row: int) -> Trained:
        return Trained(training.key, row, 1, 9, 9)

    def decoded(self, weights: Artifact, vocabulary: Artifact, source: tuple[int, ...]) -> Decoded:
        return Decoded(weights.key, (), (), ("a", "b", "</s>"), ("x", "</s>"), np.eye(2, 3)[None, None])


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> TraceContext:
    """The artifacts of a run up to its shards: a corpus of two parts and one set."""
    base = tmp_path_factory.mktemp("context")
    corpus, archives = corpus_of(base / "text", ("first", *FIRST), ("second", *SECOND))
    filters = Filters(DEMO_RULES, exclude=("dev",))
    prepared = Artifact("prepare_sets", "dev", base / "dev", facts={"pairs": len(SET)})
    prepared.path().mkdir()
    frame = pl.DataFrame(SET, schema=["source", "target"], orient="row")
    frame.insert_column(0, pl.Series("pair_id", ["dev:0", "dev:1"])).write_parquet(base / "dev/pairs.parquet")
    made = {("download", path): archive for path, archive in archives.items()} | {("prepare_sets", "dev"): prepared}
    sharding = Sharding(max_pieces=40, pairs_per_shard=1)

    def add(name: str, item: str = "") -> Path:
        made[name, item] = Artifact(name, f"{name}{item}", base / f"{name}{item}")
        made[name, item].path().mkdir()
        return made[name, item].path()

    clean.clean.body(add("clean"), corpus, archives, (prepared,), filters)
    learn_bpe.body(add("learn_bpe"), made["clean", ""], Vocabulary(size=270, min_frequency=1))
    shard.body(add("shard", "train"), made["clean", ""], made["learn_bpe", ""], sharding)
    shard.body(add("shard", "dev"), prepared, made["learn_bpe", ""], KEEP_EVERY_PAIR)
    text = Text(File("dev.en", sha256="0" * 64))
    return TraceContext("toy", corpus, (EvaluationSet("dev", text, text),), filters, sharding, made)


def trace_of(context: TraceContext, pair_id: str) -> PairTrace:
    return trace(context, pair_id, FakeNetwork())


def step_of(traced: PairTrace, kind: type[Kind]) -> Kind:
    (step,) = [step for step in traced.steps if isinstance(step, kind)]
    return step


def last_verdict(traced: PairTrace) -> RuleVerdict:
    cleaned = step_of(traced, Cleaned)
    assert [verdict.rule for verdict in cleaned.verdicts] == [rule.name for rule in DEMO_RULES]
    applied = [verdict for verdict in cleaned.verdicts if verdict.said != "not asked"]
    assert {verdict.said for verdict in applied[:-1]} <= {"kept"}
    return applied[-1]


@pytest.mark.parametrize("pair_id", ["first:0", "first:2", "second:1"])
def test_a_kept_pair_is_where_its_trace_says(context: TraceContext, pair_id: str) -> None:
    traced = trace_of(context, pair_id)
    encoded, sharded, cleaned = step_of(traced, Encoded), step_of(traced, Sharded), step_of(traced, Cleaned)
    row = pl.read_ipc(Path(sharded.folder) / sharded.file).row(sharded.row, named=True)
    assert row == {"pair_id": pair_id, "source": [*encoded.source_ids], "target": [*encoded.target_ids]}
    pieces = TokenizerPair.load(context.made["learn_bpe", ""].path())
    assert pieces.decode_target(encoded.target_ids) == cleaned.target
    assert traced.steps[-1] == Missing("train", "not made yet")
    published = step_of(traced, Published)
    assert " ".join(published.source.split()) == cleaned.source
    assert (published.source == cleaned.source) == (pair_id != "first:2"), "white space as published"


def test_rows_count_over_all_shards(context: TraceContext) -> None:
    trained = replace(context, made={**context.made, ("train", ""): Artifact("train", "weights", Path())})
    pair_ids = [f"first:{line}" for line in range(6)] + ["second:0", "second:1"]
    steps = [step for pair_id in pair_ids for step in trace_of(trained, pair_id).steps]
    assert sorted(step.update for step in steps if isinstance(step, Trained)) == [0, 1, 2]
    assert len({step.file for step in steps if isinstance(step, Sharded)}) == 3


@pytest.mark.parametrize(
    ("pair_id", "verdict"),
    [
        ("first:1", RuleVerdict("length_ratio", "rejected", "ratio 4.50", "at most 2.5")),
        ("first:3", RuleVerdict("distinct", "rejected", "repeats first:0")),
        ("second:0", RuleVerdict("distinct", "rejected", "repeats first:0")),
        ("first:5", RuleVerdict("not_in", "rejected", "source is that of dev:1")),
    ],
)
def test_a_rejected_pair_ends_with_the_cause(context: TraceContext, pair_id: str, verdict: RuleVerdict) -> None:
    traced = trace_of(context, pair_id)
    assert last_verdict(traced) == verdict
    assert isinstance(traced.steps[-1], Cleaned)


def test_a_repeated_pair_names_the_first_even_if_a_later_rule_rejected_it(tmp_path: Path) -> None:
    corpus, archives = corpus_of(tmp_path, ("toy", ["One.", "One.", "Two."], [MANY, MANY, "Zwei."]))
    filters = Filters((Distinct(), LengthRatio()))
    (tmp_path / "clean").mkdir()
    clean.clean.body(tmp_path / "clean", corpus, archives, (), filters)
    made = {("clean", ""): Artifact("clean", "toy", tmp_path / "clean")}
    cleaned = step_of(trace_of(TraceContext("toy", corpus, (), filters, Sharding(), made), "toy:1"), Cleaned)
    assert cleaned.verdicts[0] == RuleVerdict("distinct", "rejected", "repeats toy:0")


def test_a_pair_that_no_shard_holds_ends_with_the_limits(context: TraceContext) -> None:
    dropped = trace_of(context, "first:4").steps[-1]
    assert isinstance(dropped, Dropped)
    assert "min_pieces 1, max_pieces 40" in dropped.why


@pytest.mark.parametrize(
    ("pair_id", "lost", "kinds"),
    [
        ("first:0", ("download", "first/train.en"), [Missing, Cleaned, Encoded, Sharded, Missing]),
        ("first:0", ("clean", ""), [Published, Missing]),
        ("first:0", ("learn_bpe", ""), [Published, Cleaned, Missing]),
        ("first:0", ("shard", "train"), [Published, Cleaned, Encoded, Missing, Missing]),
        ("dev:0", ("prepare_sets", "dev"), [Missing]),
        ("dev:0", ("shard", "dev"), [Published, Encoded, Missing, Missing, Missing, Missing]),
    ],
)
def test_a_missing_artifact_is_named_and_the_other_steps_remain(
    context: TraceContext, pair_id: str, lost: tuple[str, str], kinds: list[type]
) -> None:
    made = {name: artifact for name, artifact in context.made.items() if name != lost}
    steps = trace_of(replace(context, made=made, reasons={lost: "lost"}), pair_id).steps
    assert [type(step) for step in steps] == kinds
    assert Missing(" ".join(lost).strip(), "lost") in steps


def test_a_pair_of_a_set_is_decoded_if_there_are_weights(context: TraceContext) -> None:
    trained = replace(context, made={**context.made, ("average", ""): Artifact("average", "weights", Path())})
    traced = trace_of(trained, "dev:1")
    attended = step_of(traced, Decoded).attended
    assert [(each.written, each.source, each.weight) for each in attended] == [("x", "a", 1), ("</s>", "b", 1)]
    assert "attended" in str(traced.as_json())


@pytest.mark.parametrize("pair_id", ["first:6", "dev:2", "first:00", "first", "first:-1", "first:²", "other:0", ""])
def test_the_error_for_an_unknown_id_lists_the_known_ids(context: TraceContext, pair_id: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        trace_of(context, pair_id)
    ids = "first:0 to first:5, second:0 to second:1, dev:0 to dev:1"
    assert str(caught.value) == f"unknown pair_id {pair_id!r}: the run toy has {ids}"
