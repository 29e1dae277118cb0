"""``repro new`` writes a run of a user's own text and says what it saw."""

import gzip
import io
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.commands.new import new
from flows.commands.show import show
from flows.runner.find_run import find_run
from flows.runner.request import RunRequest
from flows.runs import languages
from flows.runs.own_text import TextFile, look
from flows.runs.piped_text import save_pipes
from flows.runs.text_settings import fitting
from infra.errors import BadConfiguration, BadData, Fault
from infra.store.files import write_atomically
from model.config.normalise import STANDARD
from tasks.cleaning.filters import Length
from tasks.cleaning.partitions import normalise_sides
from tasks.corpus.catalogue import files
from tasks.demo import corpus as demo_corpus

SIDES = ("en", "de")
TRAIN: dict[str, Any] = {"source": "data/train.en.gz", "target": "data/train.de.gz"}
TEXT = {**TRAIN, "dev": ("dev.en", "dev.de")}
"""The options for the whole text of the fixture ``text``."""


def train_lines() -> list[list[str]]:
    return [demo_corpus.content(f"demo/train.{side}").decode(errors="replace").split("\n")[:-1] for side in SIDES]


def test_a_run_of_own_text_is_written_and_read(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new("mine", **TEXT)
    run = find_run("mine.toml")
    assert (run.name, run.corpus.source_language, run.corpus.target_language, run.dev) == ("mine", "en", "de", "dev")
    part = run.corpus.parts[0]
    assert Path(part.source.file.url) == text / "data/train.en.gz"
    assert part.source.file.size == (text / "data/train.en.gz").stat().st_size
    assert run.filters.exclude == ("dev",)
    assert not [limit for limit in run.expect if limit.startswith("warn train.")], "of the text that it is like"
    assert "the paper's 10 minutes" not in (text / "mine.toml").read_text(), "which hold for its corpus alone"
    said = capsys.readouterr().err
    assert re.search("filters reject .*`clean` leaves them out, nothing to do unless a warning follows", said)
    assert "next: repro plan mine.toml" in said
    assert "exchange --source and --target" not in said, "few are"
    with pytest.raises(BadConfiguration, match="mine.toml exists"):
        new("mine", **TEXT)


def test_files_have_short_names_with_folders_where_two_would_be_equal(text: Path) -> None:
    (text / "other").mkdir()
    shutil.copy(text / "dev.en", text / "other")
    test = ("other/dev.en", "dev.de")
    new("mine", source=f"{text}/data/train.en.gz", target="data/train.de.gz", dev=("dev.en", "dev.de"), test=(test,))
    run = find_run("mine.toml")
    assert [file.path for file in files(run.corpus, run.sets)] == [
        f"mine/{each}" for each in ("train.en.gz", "train.de.gz", "dev.en", "dev.de", "other/dev.en")
    ]


def test_without_a_dev_set_pairs_are_held_out_and_excluded(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new("mine", **TRAIN)
    held = [(text / f"mine.dev.{side}").read_text().split("\n")[:-1] for side in ("en", "de")]
    trained = train_lines()
    pairs = list(zip(*held, strict=True))
    assert len(pairs) == max(200, len(trained[0]) // 20)
    assert len(set(pairs)) == len(pairs)
    assert "\ufffd" not in f"{pairs}", "a set of such text is refused"
    whole = [[" ".join(line.split()) for line in side] for side in trained]
    assert set(pairs) <= set(zip(*whole, strict=True))
    said = capsys.readouterr().err
    count = f"{len(trained[0]):,}"
    assert re.search(rf"{count} pairs, [\d,]+ of them in the held-out set; filters reject .*%\) of {count};", said)
    assert not re.search(r"not_in: [1-9],\d", said), "held-out pairs are no rejected ones"
    before = (text / "mine.dev.en").read_bytes()
    new("mine", **TRAIN, replace=True)
    assert (text / "mine.dev.en").read_bytes() == before, "the same pairs by seed"
    for side, lines in zip(SIDES, trained, strict=True):
        write_atomically(text / f"{side}\u00a0x/train", "".join(f"{line}\n" for line in lines[:2_000]))
    with pytest.raises(BadConfiguration, match="allowed is a relative path"):
        new("mine", source="en\u00a0x/train", target="de\u00a0x/train", languages=("en", "de"), replace=True)
    assert (text / "mine.dev.en").read_bytes() == before, "no run was written either"
    longer = [gzip.decompress((text / f"data/train.{side}.gz").read_bytes()) for side in SIDES]
    for side, content in zip(SIDES, longer, strict=True):
        (text / f"more.{side}").write_bytes(content + (text / f"dev.{side}").read_bytes())
    kept = ("mine.dev.en", "mine.dev.de")
    assert not (text / "mine.toml.before").exists(), "the same run was written again"
    by_hand = (text / "mine.toml").read_text() + "# by hand\n"
    (text / "mine.toml").write_text(by_hand)
    new("mine", source="more.en", target="more.de", dev=kept, replace=True)
    assert (text / "mine.dev.en").read_bytes() == before, "a dev set that is given stays"
    assert find_run("mine.toml").filters.exclude == ("dev",)
    (text / "mine.toml").write_text(f"{by_hand}again\n")
    new("mine", source="more.en", target="more.de", dev=kept, replace=True)
    assert (text / "mine.toml.before").read_text() == by_hand, "an earlier copy stays"
    assert (text / "mine.toml.before2").read_text() == f"{by_hand}again\n"


def test_no_held_out_pair_is_a_line_of_a_test_set(text: Path) -> None:
    trained = train_lines()
    half = len(trained[0]) // 2
    for side, lines in zip(SIDES, trained, strict=True):
        (text / f"half.{side}").write_text("".join(f"{line}\n" for line in lines[:half]))
    new("mine", **TRAIN, test=(("half.en", "half.de"),))
    for side, lines in zip(SIDES, trained, strict=True):
        held = (text / f"mine.dev.{side}").read_text().splitlines()
        assert not {*held} & {" ".join(line.split()) for line in lines[:half]}


def test_held_out_lines_with_control_characters_are_those_of_the_text(text: Path) -> None:
    sides = [[line.replace(" ", "\x1f", 1) for line in side] for side in train_lines()]
    for name, side in zip(SIDES, sides, strict=True):
        write_atomically(text / f"odd.{name}", "".join(f"{line}\n" for line in side))
    new("odd", source="odd.en", target="odd.de")
    held = [(text / f"odd.dev.{name}").read_text().split("\n")[:-1] for name in SIDES]
    frames = [pl.DataFrame(dict(zip(("source", "target"), each, strict=True))) for each in (held, sides)]
    found, known = ({*normalise_sides(frame, STANDARD).rows()} for frame in frames)
    assert found <= known, "otherwise NotIn does not remove them"


def test_columns_of_a_table(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = train_lines()
    write_atomically(
        text / "pairs.tsv",
        "".join(
            "\t".join(map(str.strip, pair)) + "\n"
            for pair in zip(*sides, strict=True)
            if "\t" not in f"{pair[0]}{pair[1]}"
        ),
    )
    new("mine", source="pairs.tsv:1", target="pairs.tsv:2")
    run = find_run("mine.toml")
    assert (run.corpus.source_language, run.corpus.target_language) == ("en", "de"), "told by common words"
    assert "names of the columns" not in capsys.readouterr().err
    write_atomically(text / "named.tsv", "english\tgerman\n" + (text / "pairs.tsv").read_text())
    new("named", source="named.tsv:1", target="named.tsv:2")
    assert "the first row, 'english' and 'german', may be the names of the columns" in capsys.readouterr().err
    assert [text.column for text in (run.corpus.parts[0].source, run.corpus.parts[0].target)] == ["1", "2"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"source": "none.en"}, "--source is 'none.en'"),
        ({"target": "data/train.en.gz"}, "--source and --target"),
        ({"target": "dev.de"}, "line n of one"),
        ({"dev": ("dev.en", "none")}, "--dev is 'none'"),
        ({"size": "tiny", "like": "demo"}, "--size and --like"),
        ({"name": "../mine"}, "name is '../mine'"),
        ({"name": "demo"}, "built-in"),
        ({"name": "foo-swapped"}, "foo-swapped is the name of a built-in or swapped run"),
        ({"name": "my-paper-a-scale2"}, "my-paper-a-scale2 is the name of a built-in"),
        ({"languages": ("English", "de")}, "--languages has 'English'"),
        ({"source": "text.tgz"}, "an archive"),
        ({"source": "text.ZIP"}, "an archive; unpack it"),
        ({"source": "no\xa0break.en"}, "rename the file"),
        ({"test": (("empty.en", "empty.de"),)}, "the files of test hold no line"),
        (
            {"like": "multi30k-ende-bt", "languages": ("en", "fr"), "dev": None, "replace": True},
            "--like multi30k-ende-bt: ",
        ),
        ({"dev": ("rows.txt", "dev.de")}, "JSON object"),
        ({"dev": ("rows.jsonl", "dev.de")}, "a field such as"),
        ({"dev": ("few.en", "few.de")}, "--dev has 2 pairs, allowed are at least 50"),
        ({"source": "few.en", "target": "few.de", "dev": None, "replace": True}, "too few to hold out 200"),
        ({"budget": "half an hour"}, "--budget is 'half an hour'"),
        ({"budget": "0m"}, "--budget is '0m'"),
        ({"budget": "1m"}, "--budget is 1m, allowed is at least 4m"),
        ({"dev": None}, "mine.dev.en exists"),
        ({"source": "mine.dev.en", "target": "dev.de", "dev": None, "replace": True}, "the text itself"),
    ],
)
def test_mistakes_are_named(text: Path, words: dict[str, str], named: str) -> None:
    for name in ("text.tgz", "text.ZIP", "no\xa0break.en", "mine.dev.de", "mine.dev.fr"):
        (text / name).write_bytes(b"its content")
    for name in ("empty.en", "empty.de"):
        (text / name).touch()
    for name in ("rows.jsonl", "rows.txt"):
        (text / name).write_text('{"english": "A dog runs."}\n' * 9)
    for side in ("en", "de"):
        (text / f"few.{side}").write_bytes(b"".join((text / f"dev.{side}").read_bytes().splitlines(keepends=True)[:2]))
    before = (text / "dev.en").read_bytes()
    (text / "mine.dev.en").write_bytes(before)
    with pytest.raises((BadConfiguration, Fault, ValueError)) as found:
        new(**{"name": "mine"} | TEXT | words)
    assert named in f"{found.value}"
    assert not list(text.glob("*.toml"))
    assert (text / "mine.dev.en").read_bytes() == before
    assert {(text / f"mine.dev.{side}").read_bytes() for side in ("de", "fr")} == {b"its content"}


def test_the_amount_of_text_and_the_budget_choose_the_settings(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new("mine", **TEXT)
    run = find_run("mine.toml")
    pairs = int(demo_corpus.content("demo/train.en").count(b"\n"))
    assert (run.model, run.training) == (fitting(pairs)[0].model, fitting(pairs)[0].training)
    assert f"{run.training.updates:,} updates of 1.00 s (1.00 s without" in capsys.readouterr().err
    new("less", **TEXT, budget="30m")
    said = capsys.readouterr().err
    assert re.search(
        r"at this time of an update the budget chose a smaller model: \d layers of \d+, not 4 of 128", said
    )
    assert re.search(rf"checking {pairs:,} pairs .*timing updates", said, re.DOTALL)
    assert "poor model" not in said
    new("poor", **TEXT, budget="10m")
    assert "expect a poor model: 450 updates" in capsys.readouterr().err
    less = find_run("less.toml")
    assert less.training.updates <= 30 * 60 * 0.9 < run.training.updates
    assert 0 < less.training.minutes < 30
    assert less.training.checkpoint_every < run.training.checkpoint_every, "as many checkpoints"


def test_no_budget_is_given_to_a_training_counted_in_epochs(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text / "like.toml").write_text(
        'extends = "demo"\nname = "like"\n[training]\nupdates = 0\nepochs = 3\nbatch_sentences = 9\n'
    )
    with pytest.raises(BadConfiguration, match="--budget does not fit --like: training.epochs is 3"):
        new("mine", **TEXT, like="like.toml", budget="30m")
    new("mine", **TEXT, like="like.toml")
    assert "3 epochs in updates of 9 pairs;" in capsys.readouterr().err


def test_of_another_run_s_settings_no_time_is_claimed_and_its_evaluated_sets_are_not_kept(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for settings in ('evaluate = ["dev"]\n[decoding]\nensemble = [1, 2]', "[training]\nminutes = 5"):
        (text / "like.toml").write_text(f'extends = "demo"\nname = "like"\n{settings}\n')
        new("mine", **TEXT, like="like.toml", replace=True)
        assert "the run takes about" not in capsys.readouterr().err, "of several trainings or with a clock"
        assert find_run("mine.toml").evaluate == ()


def test_only_what_can_be_read_once_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("a,b\n")
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", dir="/dev/shm") as file, Path("text").open() as opened:
        assert [*save_pipes([f"{file.name}:1"], "mine", False)] == [f"{file.name}:1"]
        assert [*save_pipes([f"/dev/fd/{opened.fileno()}:1"], "mine", False)] == ["mine.piped-1.csv:1"]


def test_an_empty_pipe_replaces_no_saved_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.piped-1.txt").write_text("kept\n")
    with Path("/dev/null").open() as opened, pytest.raises(BadConfiguration, match=r"/dev/fd/\d+ is empty"):
        [*save_pipes([f"/dev/fd/{opened.fileno()}"], "mine", True)]
    assert (tmp_path / "mine.piped-1.txt").read_text() == "kept\n"


def test_lines_that_shift_and_pipes_of_json_lines(
    text: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = train_lines()
    del sides[1][700]
    rows = [json.dumps({"in": {"en": en, "de": de}}) for en, de in zip(*sides, strict=False)]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(rows).encode())))
    new("mine", source="-:in.en", target="-:in.de", dev=("dev.en", "dev.de"))
    source = find_run("mine.toml").corpus.parts[0].source
    assert (Path(source.file.url).name, source.column) == ("mine.piped-1.jsonl", "in.en")
    said = capsys.readouterr().err
    found = re.search(r"from about line ([\d,]+) to .* without a counterpart, often the last", said)
    assert found
    assert abs(int(found[1].replace(",", "")) - 701) < 20
    assert said.endswith("next: mend the text and repeat this with --replace\n")
    for name, side in zip(SIDES, sides, strict=True):
        (text / f"cut.{name}").write_text("".join(f"{line}\n" for line in side))
    with pytest.raises(BadData, match=r"line n of the other; from about line (69\d|7[01]\d) .* line there$"):
        new("cut", source="cut.en", target="cut.de", dev=("dev.en", "dev.de"))


def test_a_file_that_changed_is_noticed_by_the_plan(text: Path, caplog: pytest.LogCaptureFixture) -> None:
    new("mine", **TEXT)
    RunRequest("mine.toml").resolve()
    assert not caplog.text
    (text / "dev.de").write_bytes((text / "dev.de").read_bytes() + b"Ein Hund.\n")
    RunRequest("mine.toml").resolve()
    assert "dev.de changed after mine pinned it" in caplog.text
    assert "`repro new mine …` with --replace" in caplog.text


def test_pairs_with_exchanged_sides_are_counted(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text / "some.en").write_text(
        "".join(["A dog runs with the ball\n"] * 60 + ["Der Hund ist mit mir\n", "Wir sind auf dem Weg\n"])
    )
    (text / "some.de").write_text(
        "".join(["Ein Hund rennt mit dem Ball\n"] * 60 + ["The dog is with me\n", "We are on the way\n"])
    )
    new("some", source="some.en", target="some.de", dev=("dev.en", "dev.de"))
    assert "swapped: 2, for example 'Der Hund ist mit mir' | 'The dog is with me'" in capsys.readouterr().err


def test_latin_1_is_seen(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = demo_corpus.content("demo/train.de").decode(errors="replace")
    (text / "latin.de").write_bytes(lines.encode("latin-1", "replace"))
    new("mine", source="data/train.en.gz", target="latin.de", dev=("dev.en", "dev.de"))
    said = capsys.readouterr().err
    assert "invalid_unicode: " in said
    assert "not UTF-8" in said


def test_mistakes_in_sets_are_seen(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text / "latin.de").write_bytes((text / "dev.de").read_bytes().decode().encode("latin-1"))
    new("mine", **TRAIN, dev=("dev.de", "dev.en"), test=(("dev.en", "latin.de"), ("dev.en", "dev.de")))
    said = capsys.readouterr().err
    assert "warning: dev: the sides look exchanged" in said
    assert "warning: test1: " in said
    assert "warning: test2" not in said
    new("again", **TRAIN, dev=("data/train.en.gz", "data/train.de.gz"))
    assert "have a line of a dev or test set; is a file given twice?" in capsys.readouterr().err


def test_lines_of_the_sets_are_no_repetitions_and_markup_and_control_characters_are_seen(tmp_path: Path) -> None:
    lines = [
        "A known line.",
        "A known line.",
        "One <b>&amp;</b> two.",
        "<p>Known.",
        "Again, a line.",
        "Again, a line.",
        "A bell\a.",
    ]
    sides = [TextFile(tmp_path / name) for name in ("train.en", "train.de")]
    for side in sides:
        side.path.write_text("".join(f"{line} ({side.path.suffix})\n" for line in lines))
    known = pl.DataFrame({"source": ["A known line. (.en)", "<p>Known. (.en)"], "target": ["Eine Zeile.", "Ja."]})
    report = look(sides[0], sides[1], len(lines), languages.standard_filters("en", "de", Length(), ("dev",)), [known])
    assert (report.repeated, [*map(len, report.marked)], report.control) == (1, [2, 2], 1), "as many as grep finds"
    assert report.rejected_by["not_in"] == 3


def test_a_file_like_another(text: Path) -> None:
    new("mine", **TEXT)
    new("other", **TEXT, like="mine.toml")
    assert (text / "other.toml").read_text().startswith('extends = "mine.toml"\n')
    assert find_run("other.toml").model == find_run("mine.toml").model
    new("third", **TEXT, like="mine-swapped")
    assert (text / "third.toml").read_text().startswith('extends = "mine.toml-swapped"\n')
    assert find_run("third.toml").model == find_run("mine.toml").model


def test_what_a_shown_run_extends_can_be_read(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text / "mine.toml").write_text('extends = "demo"\n[model]\nlayers = 3\n')
    for name in ("mine", "mine-swapped", "demo", "demo-paper-A1-scale8", "mine.toml"):
        show(name, extends=name)
        (text / "shown.toml").write_text(capsys.readouterr().out)
        assert find_run("shown.toml") == find_run(name), name


def test_a_folder_may_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("~data").mkdir()
    for name in ("train.en", "pairs.tsv"):
        (tmp_path / "~data" / name).write_text("A dog.\n")
    assert TextFile.parse("~data/train.en", "--source") == TextFile(Path("~data/train.en"))
    assert TextFile.parse("~data/pairs.tsv:1", "--source") == TextFile(Path("~data/pairs.tsv"), "1")
