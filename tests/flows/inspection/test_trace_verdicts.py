"""A trace names artifacts that are missing, and the parts and sets that there are."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from flows.inspection.trace import PairTrace, RunArtifacts, trace
from flows.runs import DEMO, Run
from flows.runs.synthetic import Distillation
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.store import Artifact
from tasks.cleaning.filters import Filters
from tasks.corpus.catalogue import EvaluationSet, File, Text
from tasks.stages import clean
from tasks.stages.extract_best import extract_best
from tasks.stages.learn_bpe import Vocabulary, learn_bpe
from tasks.stages.shard import KEEP_EVERY_PAIR, Sharding, shard
from tests.tasks.stages.test_clean import DEMO_RULES, corpus_of

LONG = " ".join(["dogs"] * 50)
MANY = "Und das sind sehr viele Wörter für eine Katze."
FIRST = (
    ["The dog runs.", "One cat.", " A\tman sings. ", "The dog runs.", LONG, "Known line here."],
    ["Der Hund läuft.", MANY, "Ein Mann singt.", "Der Hund läuft.", LONG.replace("dogs", "Hund"), "Etwas anderes."],
)
SECOND = (["The dog runs.", "Two men sing."], ["Der Hund läuft.", "Zwei Männer singen."])
SET = [("A line of it.", "Eine Zeile."), ("Known  line here.", "Bekannte Zeile.")]

Toy = tuple[Run, RunArtifacts]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """The artifacts of a run up to its shards: a corpus of two parts and one set."""
    base = tmp_path_factory.mktemp("toy")
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
    sets = (EvaluationSet("dev", text, text),)
    run = replace(DEMO, name="toy", corpus=corpus, dev="dev", sets=sets, filters=filters, sharding=sharding)
    return run, RunArtifacts(made, {})


def trace_of(toy: Toy, pair_id: str) -> PairTrace:
    return trace(toy[0], Site(), toy[1], pair_id)


@pytest.mark.parametrize(
    ("pair_id", "verdict"),
    [
        ("first:1", ("length_ratio", "ratio 4.50", "at most 2.5")),
        ("first:3", ("distinct", "", "")),
        ("first:5", ("not_in", "", "")),
    ],
)
def test_a_rejected_pair_ends_with_the_cause(toy: Toy, pair_id: str, verdict: tuple[str, ...]) -> None:
    step = trace_of(toy, pair_id).steps[-1]
    verdicts = step.values["verdicts"]
    assert [each["rule"] for each in verdicts] == [rule.name for rule in DEMO_RULES]
    rejected = next(each for each in verdicts if each["said"] == "rejected")
    assert (rejected["rule"], rejected["measured"], rejected["allowed"]) == verdict
    assert {each["said"] for each in verdicts[verdicts.index(rejected) + 1 :]} <= {"not asked"}


def test_a_pair_that_is_cut_shows_its_pieces_and_where_it_is_cut(toy: Toy, tmp_path: Path) -> None:
    run, found = toy
    cut = Artifact("shard", "cut", tmp_path)
    sharding = Sharding(max_pieces=40, too_long="cut")
    shard.body(cut.path(), found.made["clean", ""], found.made["learn_bpe", ""], sharding)
    made = found.made | {("shard", "train"): cut}
    encoded, sharded, *_ = trace(replace(run, sharding=sharding), Site(), RunArtifacts(made, {}), "first:4").steps[2:]
    assert len(encoded.values["source_pieces"]) > 40
    assert sharded.says.endswith(", cut to 40 and 40 pieces")
    plain = trace(replace(run, sharding=sharding), Site(), RunArtifacts(made, {}), "first:0").steps[3]
    assert "cut" not in plain.says


def test_the_noise_of_a_set_is_not_said_to_be_published(toy: Toy, tmp_path: Path) -> None:
    run, found = toy
    noisy = replace(run.sets[0], name="dev+caps+lower")
    pairs = pl.DataFrame({"pair_id": [f"{noisy.name}:0"], "source": ["a line"], "target": ["eine zeile"]})
    pairs.write_parquet(tmp_path / "pairs.parquet")
    made = found.made | {("prepare_sets", noisy.name): Artifact("prepare_sets", noisy.name, tmp_path)}
    both = replace(run, sets=(*run.sets, noisy))
    step = trace(both, Site(), RunArtifacts(made, {}), f"{noisy.name}:0").steps[0]
    assert step.says.endswith(" of dev.en, changed by caps, changed by lower")


def distilled(toy: Toy, tmp_path: Path, hypotheses: list[str]) -> Toy:
    """The run with a teacher's translations, those of ``first:0`` as given, and the references beside them."""
    run, found = toy
    pairs = pl.read_parquet(found.made["clean", ""].path() / "pairs.parquet")
    translated = Artifact("translate_text", "t", tmp_path / "translated", facts={"lines": pairs.height})
    extracted = Artifact("extract_best", "e", tmp_path / "extracted")
    for artifact in (translated, extracted):
        artifact.path().mkdir()
    written = [hypotheses if pair_id == "first:0" else ["Etwas."] for pair_id in pairs["pair_id"]]
    rows = pairs.select("pair_id", "source").with_columns(hypotheses=pl.Series(written, dtype=pl.List(pl.String)))
    rows.write_parquet(translated.path() / "00000.parquet")
    extract_best.body(extracted.path(), found.made["clean", ""], translated, references=True)
    sharded = Artifact("shard", "distilled", tmp_path)
    shard.body(sharded.path(), extracted, found.made["learn_bpe", ""], run.sharding)
    made = {("translate_text", ""): translated, ("extract_best", ""): extracted, ("shard", "train"): sharded}
    student = replace(run, synthetic=Distillation(run.model, references=True))
    return student, RunArtifacts(found.made | made, {})


@pytest.mark.parametrize("hypotheses", [["Der Hund rennt."], []])
def test_a_reference_beside_translations_is_not_the_teachers(toy: Toy, tmp_path: Path, hypotheses: list[str]) -> None:
    step = trace_of(distilled(toy, tmp_path, hypotheses), "first:0").steps[2]
    assert step.values["target"] == "".join(hypotheses)
    assert step.says.endswith("; the reference is a further pair")
    assert step.says.startswith("the target is" if hypotheses else "no translation by the teacher ended")


def test_the_reference_is_not_taken_for_a_translation_that_no_shard_holds(toy: Toy, tmp_path: Path) -> None:
    student = distilled(toy, tmp_path, [LONG])
    assert [step.kind for step in trace_of(student, "first:0").steps[2:]] == ["distilled", "encoded", "dropped"]


def test_a_pair_that_no_shard_holds_ends_with_the_limits(toy: Toy) -> None:
    dropped = trace_of(toy, "first:4").steps[-1]
    assert dropped.kind == "dropped"
    assert "max_pieces 40" in dropped.values["why"]


@pytest.mark.parametrize(
    ("pair_id", "lost", "kinds"),
    [
        ("first:0", ("download", "first/train.en"), ["missing", "cleaned", "encoded", "sharded", "missing"]),
        ("first:0", ("clean", ""), ["published", "missing"]),
        ("first:0", ("learn_bpe", ""), ["published", "cleaned", "missing"]),
        ("first:0", ("shard", "train"), ["published", "cleaned", "encoded", "missing", "missing"]),
        ("dev:0", ("prepare_sets", "dev"), ["missing"]),
        ("dev:0", ("shard", "dev"), ["published", "encoded", "missing", "missing", "missing", "missing"]),
    ],
)
def test_a_missing_artifact_is_named_and_the_other_steps_remain(
    toy: Toy, pair_id: str, lost: tuple[str, str], kinds: list[str]
) -> None:
    made = {name: artifact for name, artifact in toy[1].made.items() if name != lost}
    steps = trace_of((toy[0], RunArtifacts(made, {lost: "lost"})), pair_id).steps
    assert [step.kind for step in steps] == kinds
    assert (" ".join(lost).strip(), "lost") in [(step.stage, step.values.get("why")) for step in steps]


@pytest.mark.parametrize("pair_id", ["first:6", "dev:2", "first:00", "first", "first:-1", "first:²", "other:0", ""])
def test_the_error_for_an_unknown_id_names_the_parts_and_sets(toy: Toy, pair_id: str) -> None:
    with pytest.raises(BadConfiguration, match="first, second, dev"):
        trace_of(toy, pair_id)
