"""A walk says what the artifacts say, names what is missing, and knows which pair another one repeats."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from infra.errors import BadConfiguration
from infra.store.local import Artifact
from model.data.bpe import TokenizerPair
from tasks.cleaning.filters import Distinct, Filters, LengthRatio
from tasks.corpus.catalogue import EvaluationSet, File, Text
from tasks.stages import clean
from tasks.stages.learn_bpe import Vocabulary, learn_bpe
from tasks.stages.shard import NO_LIMITS, Sharding, shard
from tasks.tracing.steps import (
    Beam,
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


class FakeNetwork:
    """Says what it was asked."""

    def batched(self, training: Artifact, shards: Artifact, row: int) -> Trained:
        return Trained(training.key, row, 1, 9, 9)

    def decoded(self, weights: Artifact, vocabulary: Artifact, source: tuple[int, ...]) -> Decoded:
        beam = Beam(f"{len(source)} pieces", -1.0, -1.0, 2, True)
        return Decoded(weights.key, (beam,), ("a", "b", "</s>"), ("x", "</s>"), np.eye(2, 3)[None, None])


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> TraceContext:
    """A run done until its shards, of two parts and one set."""
    base = tmp_path_factory.mktemp("ground")
    corpus, archives = corpus_of(base / "text", ("first", *FIRST), ("second", *SECOND))
    filters = Filters(DEMO_RULES, exclude=("dev",))
    prepared = Artifact("prepare_sets", "dev", base / "dev", facts={"pairs": len(SET)})
    prepared.path().mkdir()
    frame = pl.DataFrame(SET, schema=["source", "target"], orient="row")
    frame.insert_column(0, pl.Series("pair_id", ["dev:0", "dev:1"])).write_parquet(base / "dev/pairs.parquet")
    made = {("download", path): archive for path, archive in archives.items()} | {("prepare_sets", "dev"): prepared}
    sharding = Sharding(max_pieces=40, pairs_per_shard=1)

    def done(name: str, item: str = "") -> Path:
        made[name, item] = Artifact(name, f"{name}{item}", base / f"{name}{item}")
        made[name, item].path().mkdir()
        return made[name, item].path()

    clean.clean_corpus(done("clean"), corpus, archives, (prepared,), filters)
    learn_bpe.body(done("learn_bpe"), made["clean", ""], Vocabulary(size=270, min_frequency=1))
    shard.body(done("shard", "train"), made["clean", ""], made["learn_bpe", ""], sharding)
    shard.body(done("shard", "dev"), prepared, made["learn_bpe", ""], NO_LIMITS)
    text = Text(File("dev.en", sha256="0" * 64))
    return TraceContext("toy", corpus, (EvaluationSet("dev", text, text),), filters, sharding, made, {})


def without(ground: TraceContext, *places: tuple[str, str]) -> TraceContext:
    made = {place: artifact for place, artifact in ground.made.items() if place not in places}
    return replace(ground, made=made, missing=dict.fromkeys(places, "lost"))


def walk_of(ground: TraceContext, pair_id: str) -> PairTrace:
    return trace(ground, pair_id, FakeNetwork())


def step_of(walk: PairTrace, kind: type) -> object:
    (step,) = [step for step in walk.steps if isinstance(step, kind)]
    return step


def last_word(walk: PairTrace) -> RuleVerdict:
    cleaned = step_of(walk, Cleaned)
    assert isinstance(cleaned, Cleaned)
    assert [verdict.rule for verdict in cleaned.verdicts] == [rule.name for rule in DEMO_RULES]
    asked = [verdict for verdict in cleaned.verdicts if verdict.said != "not asked"]
    assert {verdict.said for verdict in asked[:-1]} <= {"kept"}
    return asked[-1]


def test_a_line_is_told_as_published_and_as_normalised(ground: TraceContext) -> None:
    walk = walk_of(ground, "first:2")
    published, cleaned = step_of(walk, Published), step_of(walk, Cleaned)
    assert isinstance(published, Published)
    assert isinstance(cleaned, Cleaned)
    assert (published.source, published.line) == (" A\tman sings. ", 2)
    assert cleaned.source == "A man sings."


@pytest.mark.parametrize("pair_id", ["first:0", "first:2", "second:1"])
def test_a_kept_pair_lies_where_its_walk_says(ground: TraceContext, pair_id: str) -> None:
    walk = walk_of(ground, pair_id)
    encoded, sharded, cleaned = step_of(walk, Encoded), step_of(walk, Sharded), step_of(walk, Cleaned)
    assert isinstance(encoded, Encoded)
    assert isinstance(sharded, Sharded)
    assert isinstance(cleaned, Cleaned)
    row = pl.read_ipc(Path(sharded.folder) / sharded.file).row(sharded.row, named=True)
    assert row == {"pair_id": pair_id, "source": [*encoded.source_ids], "target": [*encoded.target_ids]}
    pieces = TokenizerPair.load(ground.made["learn_bpe", ""].path())
    assert pieces.decode_target(encoded.target_ids) == cleaned.target
    assert walk.steps[-1] == Missing("train", "not made yet")


def test_the_network_is_asked_for_the_row_over_all_shards(ground: TraceContext) -> None:
    trained = replace(ground, made={**ground.made, ("train", ""): Artifact("train", "weights", Path())})
    rows = [step_of(walk_of(trained, pair_id), Trained) for pair_id in ("first:0", "first:2", "second:1")]
    assert sorted(row.update for row in rows if isinstance(row, Trained)) == [0, 1, 2]


def test_a_rejected_pair_ends_with_the_number_that_was_too_high(ground: TraceContext) -> None:
    walk = walk_of(ground, "first:1")
    assert last_word(walk) == RuleVerdict("length_ratio", "rejected", "ratio 4.50", "at most 2.5")
    assert isinstance(walk.steps[-1], Cleaned)


@pytest.mark.parametrize("pair_id", ["first:3", "second:0"])
def test_a_repeated_pair_names_the_first_in_reading_order(ground: TraceContext, pair_id: str) -> None:
    assert last_word(walk_of(ground, pair_id)) == RuleVerdict("distinct", "rejected", "repeats first:0")


def test_what_a_later_rule_rejected_was_there_before_too(tmp_path: Path) -> None:
    corpus, archives = corpus_of(tmp_path, ("toy", ["One.", "One.", "Two."], [MANY, MANY, "Zwei."]))
    filters = Filters((Distinct(), LengthRatio()))
    (tmp_path / "clean").mkdir()
    clean.clean_corpus(tmp_path / "clean", corpus, archives, (), filters)
    made = {("clean", ""): Artifact("clean", "toy", tmp_path / "clean")}
    cleaned = step_of(walk_of(TraceContext("toy", corpus, (), filters, Sharding(), made, {}), "toy:1"), Cleaned)
    assert isinstance(cleaned, Cleaned)
    assert cleaned.verdicts[0] == RuleVerdict("distinct", "rejected", "repeats toy:0")


def test_a_line_of_a_set_is_named(ground: TraceContext) -> None:
    assert last_word(walk_of(ground, "first:5")) == RuleVerdict("not_in", "rejected", "source is that of dev:1")


def test_a_pair_that_is_too_long_for_a_shard_says_the_limit(ground: TraceContext) -> None:
    walk = walk_of(ground, "first:4")
    dropped = walk.steps[-1]
    assert isinstance(dropped, Dropped)
    assert dropped.why.endswith("more than sharding.max_pieces 40")


@pytest.mark.parametrize(
    ("pair_id", "lost", "kinds"),
    [
        ("first:0", [("download", "first/train.en")], [Missing, Cleaned, Encoded, Sharded, Missing]),
        ("first:0", [("clean", "")], [Published, Missing]),
        ("first:0", [("learn_bpe", "")], [Published, Cleaned, Missing]),
        ("first:0", [("shard", "train")], [Published, Cleaned, Encoded, Missing, Missing]),
        ("dev:0", [("prepare_sets", "dev")], [Missing]),
        ("dev:0", [("shard", "dev")], [Published, Encoded, Missing, Missing, Missing, Missing]),
    ],
)
def test_what_is_not_there_is_named_and_the_rest_told(
    ground: TraceContext, pair_id: str, lost: list[tuple[str, str]], kinds: list[type]
) -> None:
    steps = walk_of(without(ground, *lost), pair_id).steps
    assert [type(step) for step in steps] == kinds
    assert Missing(" ".join(lost[0]).strip(), "lost") in steps


def test_a_pair_of_a_set_is_decoded_where_there_are_weights(ground: TraceContext) -> None:
    trained = replace(ground, made={**ground.made, ("average", ""): Artifact("average", "weights", Path())})
    walk = walk_of(trained, "dev:1")
    encoded, decoded = step_of(walk, Encoded), step_of(walk, Decoded)
    assert isinstance(encoded, Encoded)
    assert isinstance(decoded, Decoded)
    assert decoded.beams[0].text == f"{len(encoded.source_ids)} pieces"
    assert [(look.written, look.source, look.weight) for look in decoded.looks] == [("x", "a", 1), ("</s>", "b", 1)]
    assert "looks" in str(walk.as_json())


def test_what_hangs_on_something_lost_is_told_with_a_doubt(ground: TraceContext) -> None:
    doubted = replace(ground, doubts={("clean", ""): "runs if download comes out otherwise"})
    assert walk_of(doubted, "first:0").notes == ("clean: runs if download comes out otherwise",)
    assert walk_of(doubted, "dev:0").notes == ()


@pytest.mark.parametrize(
    ("pair_id", "sentence"),
    [
        ("first:6", "'first:6': the run toy has first (6 pairs, first:0 to first:5), second (2 pairs"),
        ("fisrt:3", "the nearest is first:3"),
        ("dev:2", "the nearest is dev:1"),
        ("first:00", "the nearest is first:0"),
        ("first", "the nearest is first:0"),
        ("first:-1", "unknown pair_id"),
        ("first:²", "unknown pair_id"),
        (":0", "dev (2 pairs, dev:0 to dev:1)"),
        ("", "unknown pair_id ''"),
    ],
)
def test_an_unknown_id_is_answered_with_what_there_is(ground: TraceContext, pair_id: str, sentence: str) -> None:
    with pytest.raises(BadConfiguration) as answer:
        walk_of(ground, pair_id)
    assert sentence in str(answer.value)


def test_an_id_behind_the_end_is_unknown_before_anything_is_cleaned_too(ground: TraceContext) -> None:
    read = without(ground, ("clean", ""), ("learn_bpe", ""), ("shard", "train"))
    with pytest.raises(BadConfiguration, match=r"first \(not read yet\)"):
        walk_of(read, "first:6")
