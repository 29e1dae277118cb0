"""Every pair is either kept or rejected by the first rule that objects; the order depends on the seed alone."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.runs import DEMO
from flows.runs.own_text import TextReport, remarks_on_text
from infra.errors import BadData
from infra.store.store import Artifact
from model.config.normalise import Normalise
from tasks.cleaning import partitions as parts
from tasks.cleaning.filters import (
    KNOWN,
    Distinct,
    Empty,
    Filter,
    Filters,
    Identical,
    LengthRatio,
    NoLetters,
    NotIn,
    Script,
)
from tasks.corpus import catalogue
from tasks.corpus.catalogue import Corpus, File, Part, Text, files
from tasks.demo import corpus as demo_corpus
from tasks.stages import clean

DEMO_RULES = DEMO.filters.rules
AS_READ = Normalise(nfc=False, control=False, white_space=False)


def corpus_of(folder: Path, *parts: tuple[str, list[str], list[str]]) -> tuple[Corpus, dict[str, Artifact]]:
    """A corpus of these parts, written to ``folder``."""
    made, archives = [], {}
    for name, *sides in parts:
        texts = []
        for language, lines in zip(("en", "de"), sides, strict=True):
            file = File(f"{name}/train.{language}", sha256="0" * 64)
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes("".join(line + "\n" for line in lines).encode())
            archives[file.path] = Artifact("download", file.path, path.parent)
            texts.append(Text(file))
        made.append(Part(name, texts[0], texts[1]))
    return Corpus("test", "en", "de", tuple(made)), archives


def excluded_set(folder: Path, pairs: list[tuple[str, str]]) -> Artifact:
    folder.mkdir(parents=True)
    frame = pl.DataFrame(pairs, schema=["source", "target"], orient="row")
    frame.with_row_index("pair_id").cast(pl.String).write_parquet(folder / "pairs.parquet")
    return Artifact("prepare_sets", folder.name, folder)


def cleaned(
    out: Path, corpus: Corpus, archives: dict[str, Artifact], filters: Filters, exclude: tuple[Artifact, ...] = ()
) -> tuple[dict[str, int], pl.DataFrame, pl.DataFrame]:
    out.mkdir(exist_ok=True)
    facts = clean.clean.body(out, corpus, archives, exclude, filters)
    assert sorted(path.name for path in out.iterdir()) == ["pairs.parquet", "rejected.parquet"]
    pairs, rejected = pl.read_parquet(out / "pairs.parquet"), pl.read_parquet(out / "rejected.parquet")
    assert facts["read"] == facts["pairs"] + facts["rejected"]
    assert (facts["pairs"], facts["rejected"]) == (pairs.height, rejected.height)
    counted = dict(rejected["filter"].value_counts().iter_rows())
    assert facts["rejected_by"] == {rule.name: counted.get(rule.name, 0) for rule in filters.rules}
    return facts["rejected_by"], pairs, rejected


def one_by_one(pairs: list[tuple[str, str]], rules: tuple[Filter, ...]) -> list[str]:
    """The plain meaning of the rules: each in turn over what the earlier ones left."""
    verdicts = [""] * len(pairs)
    for rule in rules:
        alive = [at for at, verdict in enumerate(verdicts) if not verdict]
        frame = pl.DataFrame([pairs[at] for at in alive], schema=["source", "target"], orient="row").cast(pl.String)
        keep = frame.with_columns(pl.lit(False).alias(KNOWN)).select(rule.keep()).to_series().to_list() if alive else []
        for at, stays in zip(alive, keep, strict=True):
            verdicts[at] = "" if stays else rule.name
    return verdicts


word = st.text(alphabet="ab. \x01\u2028Ж", max_size=4)


@given(
    pairs=st.lists(st.tuples(word, word), min_size=1, max_size=25),
    rules=st.permutations(
        [Empty(), NoLetters(), Identical(), LengthRatio(2.0), Distinct(), Distinct("target"), Script()]
    ),
    rows=st.integers(1, 9),
    buckets=st.booleans(),
)
@settings(max_examples=40)
def test_a_pair_goes_by_the_first_rule_that_objects(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: list[tuple[str, str]],
    rules: list[Filter],
    rows: int,
    buckets: bool,
) -> None:
    folder = tmp_path_factory.mktemp("clean")
    corpus, archives = corpus_of(folder / "in", ("p", [s for s, _ in pairs], [t for _, t in pairs]))
    filters = Filters(tuple(rules[:4]), AS_READ)
    expected = {f"p:{at}": verdict for at, verdict in enumerate(one_by_one(pairs, filters.rules))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.corpus.reading.ROWS", rows)
        patch.setattr(clean, "BUCKET_BYTES", 20 if buckets else 1 << 20)
        if set(expected.values()) == {""} or "" in expected.values():
            _, kept, rejected = cleaned(folder / "out", corpus, archives, filters)
            found = dict.fromkeys(kept["pair_id"], "") | dict(zip(rejected["pair_id"], rejected["filter"], strict=True))
            assert found == expected
            texts = pl.concat([kept, rejected.drop("filter")])
            assert {row[0]: row[2:] for row in texts.iter_rows()} == {f"p:{at}": p for at, p in enumerate(pairs)}
        else:
            with pytest.raises(BadData, match="is left"):
                cleaned(folder / "out", corpus, archives, filters)


def numbered(count: int, name: str = "p") -> tuple[str, list[str], list[str]]:
    return name, [f"source {n}" for n in range(count)], [f"target {n}" for n in range(count)]


def test_the_order_depends_on_the_seed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, archives = corpus_of(tmp_path / "in", numbered(500), numbered(300, "q"))
    _, first, _ = cleaned(tmp_path / "a", corpus, archives, Filters())
    cleaned(tmp_path / "b", corpus, archives, Filters())
    _, other, _ = cleaned(tmp_path / "c", corpus, archives, Filters(seed=2))
    monkeypatch.setattr(clean, "BUCKET_BYTES", 300)
    monkeypatch.setattr("tasks.corpus.reading.ROWS", 37)
    _, small, _ = cleaned(tmp_path / "d", corpus, archives, Filters())
    assert (tmp_path / "a/pairs.parquet").read_bytes() == (tmp_path / "b/pairs.parquet").read_bytes()
    assert first["pair_id"].to_list() == small["pair_id"].to_list() != other["pair_id"].to_list()
    assert first.height == 800
    assert sorted(first["pair_id"]) == sorted(other["pair_id"])
    for pair_id, part, source, target in first.iter_rows():
        assert pair_id == f"{part}:{source.removeprefix('source ')}"
        assert source[7:] == target[7:]


def test_places_are_spread_and_pinned() -> None:
    places = parts.shuffle_positions("europarl", 0, 100_000, 1)
    assert len(np.unique(places)) == 100_000
    assert abs(np.corrcoef(np.arange(100_000), places.astype(float))[0, 1]) < 0.02
    assert np.bincount((places >> np.uint64(60)).astype(int), minlength=16).min() > 5_800
    assert np.array_equal(places[700:900], parts.shuffle_positions("europarl", 700, 200, 1))
    # The order of every corpus hangs on these numbers: they may change only together with the stage's version.
    assert places[:2].tolist() == PINNED


PINNED = [8593926902798518510, 8127042604926468075]


def test_lines_of_excluded_sets_leave_after_rewriting(tmp_path: Path) -> None:
    corpus, archives = corpus_of(
        tmp_path / "in", ("p", ["In  dev.", "fine", "seen", "In dev"], ["a", "b", "c", "Im\u00a0Test."])
    )
    sets = (
        excluded_set(tmp_path / "dev", [("In dev.", "Im Dev.")]),
        excluded_set(tmp_path / "test", [("In test.", "Im Test."), ("c", "seen")]),
    )
    counts, kept, rejected = cleaned(
        tmp_path / "out", corpus, archives, Filters((NotIn(),), exclude=("dev", "test")), sets
    )
    assert counts == {"not_in": 2}
    assert set(kept["pair_id"]) == {"p:1", "p:2"}
    assert set(rejected["source"]) == {"In dev.", "In dev"}


def test_every_planted_defect_of_the_demo_is_found_and_nothing_else(tmp_path: Path) -> None:
    def lines(name: str) -> list[str]:
        return demo_corpus.content(f"demo/{name}").decode().splitlines()

    (tmp_path / "demo").mkdir()
    for file in demo_corpus.FOLDER.glob("*.xz"):
        (tmp_path / "demo" / file.stem).write_bytes(demo_corpus.content(f"demo/{file.stem}"))
    archives = {f.path: Artifact("download", f.path, tmp_path / "demo") for f in files(catalogue.CORPORA["demo"])}
    names = ("dev", "test")
    pairs = {name: list(zip(lines(f"{name}.en"), lines(f"{name}.de"), strict=True)) for name in names}
    sets = tuple(excluded_set(tmp_path / name, pairs[name]) for name in names)
    filters = Filters(DEMO_RULES, exclude=names)
    counts, _, _ = cleaned(tmp_path / "out", catalogue.CORPORA["demo"], archives, filters, sets)
    assert counts == {
        "empty": 40,
        "invalid_unicode": 60,
        "no_letters": 40,
        "overlong_word": 30,
        "length": 40 + 40,  # sides of one word, and of many
        "identical": 40,
        "script": 30,
        "language": 60 + 40,  # exchanged sides, and a third language
        "length_ratio": 60,
        "not_in": 20,
        "distinct": 240,
    }


def test_ruined_text_stops_the_run(tmp_path: Path) -> None:
    name, source, target = numbered(1_000)
    corpus, archives = corpus_of(
        tmp_path / "in", (name, source, ["" if n % 4 == 0 else target[n] for n in range(1_000)])
    )
    with pytest.raises(
        BadData, match=r"reject 250 of 1,000 pairs of .* \(25%\), allowed .* are 20%. Most by: empty 250"
    ):
        cleaned(tmp_path / "a", corpus, archives, Filters((Empty(),)))
    with pytest.raises(BadData, match=r"max_rejected are 0\.1%"):
        cleaned(tmp_path / "c", corpus, archives, Filters((Empty(),), max_rejected=0.001))
    _, kept, _ = cleaned(tmp_path / "b", corpus, archives, Filters((Empty(),), max_rejected=0.25))
    assert kept.height == 750


@given(read=st.integers(clean.FEWEST_JUDGED, 10_000), share=st.floats(0.01, 1))
@example(read=3_000, share=0.29)
def test_the_share_that_a_refusal_recommends_is_enough(read: int, share: float) -> None:
    rejected = round(share * read)
    facts = {"read": read, "rejected_by": {"empty": rejected}}
    with pytest.raises(BadData, match="--set filters.max_rejected=") as refused:
        clean.check_share(DEMO.corpus, Filters((Empty(),), max_rejected=0.001), facts)
    enough = Filters((Empty(),), max_rejected=float(f"{refused.value}".rpartition("=")[2]))
    clean.check_share(DEMO.corpus, enough, facts)
    report = TextReport(read, read, {"empty": rejected})
    assert not [*remarks_on_text(report, enough, ("en", "de"))]
