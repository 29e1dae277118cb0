"""``repro new`` writes a run of a user's own text and says what it saw."""

import gzip
from pathlib import Path

import pytest

from flows.commands.new import new
from flows.runner.find_run import find_run
from flows.runs import languages
from flows.runs.own_text import default_size
from infra.errors import BadConfiguration, Fault
from infra.store.files import write_atomically
from tasks.cleaning.filters import Length
from tasks.demo import corpus as demo_corpus


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the demo's text under names of a user's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for side in ("en", "de"):
        lines = demo_corpus.content(f"demo/train.{side}")
        (tmp_path / f"data/train.{side}.gz").write_bytes(gzip.compress(lines))
        (tmp_path / f"dev.{side}").write_bytes(demo_corpus.content(f"demo/dev.{side}"))
    return tmp_path


def test_a_run_of_own_text_is_written_and_read(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new("mine", source="data/train.en.gz", target="data/train.de.gz", dev=("dev.en", "dev.de"))
    run = find_run("mine.toml")
    assert (run.name, run.corpus.source_language, run.corpus.target_language, run.dev) == ("mine", "en", "de", "dev")
    part = run.corpus.parts[0]
    assert Path(part.source.file.url) == text / "data/train.en.gz"
    assert part.source.file.size == (text / "data/train.en.gz").stat().st_size
    assert run.filters.exclude == ("dev",)
    said = capsys.readouterr().err
    assert "filters reject" in said
    assert "next: repro plan mine.toml" in said
    assert "exchanged" not in said
    with pytest.raises(BadConfiguration, match="mine.toml exists; give another name, or --replace"):
        new("mine", source="data/train.en.gz", target="data/train.de.gz", dev=("dev.en", "dev.de"))


def test_without_a_dev_set_pairs_are_held_out_and_excluded(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new("mine", source="data/train.en.gz", target="data/train.de.gz")
    held = [(text / f"mine.dev.{side}").read_text().split("\n")[:-1] for side in ("en", "de")]
    trained = [
        demo_corpus.content(f"demo/train.{side}").decode(errors="replace").split("\n")[:-1] for side in ("en", "de")
    ]
    pairs = list(zip(*held, strict=True))
    assert 0 < len(pairs) <= len(trained[0]) // 20
    assert len(set(pairs)) == len(pairs)
    assert "\ufffd" not in f"{pairs}", "a set of such text is refused"
    whole = [[" ".join(line.split()) for line in side] for side in trained]
    assert set(pairs) <= set(zip(*whole, strict=True))
    assert "not_in: " in capsys.readouterr().err
    before = (text / "mine.dev.en").read_bytes()
    new("mine", source="data/train.en.gz", target="data/train.de.gz", replace=True)
    assert (text / "mine.dev.en").read_bytes() == before, "the same pairs by seed"


def test_exchanged_sides_are_seen(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new("mine", source="data/train.de.gz", target="data/train.en.gz", languages=("en", "de"))
    assert "the sides look exchanged" in capsys.readouterr().err


def test_columns_of_a_table(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [
        demo_corpus.content(f"demo/train.{side}").decode(errors="replace").split("\n")[:-1] for side in ("en", "de")
    ]
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
    ("words", "sentence"),
    [
        ({"source": "none.en"}, "--source is 'none.en', allowed is an existing FILE, or FILE:COLUMN"),
        ({"target": "data/train.en.gz"}, "--source and --target are both 'data/train.en.gz'"),
        ({"target": "dev.de"}, "line n of one must translate line n of the other"),
        ({"dev": ("dev.en", "none")}, "--dev is 'none'"),
        ({"size": "tiny", "like": "demo"}, "--size and --like exclude each other"),
        ({"like": "dem"}, "unknown run 'dem'; did you mean demo?"),
        ({"name": "../mine"}, "name is '../mine', allowed is"),
        ({"name": "demo"}, "demo is a built-in run; give another name"),
        ({"languages": ("English", "de")}, "--languages has 'English', allowed are ISO 639 codes"),
        ({"languages": ("de", "de")}, "--languages has 'de' twice"),
        ({"source": "text.tgz"}, "--source is 'text.tgz', an archive; unpack it"),
        ({"dev": None}, "mine.dev.en exists; give it by --dev, or give another name, or --replace"),
        (
            {"source": "mine.dev.en", "target": "dev.de", "dev": None, "replace": True},
            "mine.dev.en, which the dev set would be written to, is the text itself",
        ),
    ],
)
def test_mistakes_are_named(text: Path, words: dict[str, str], sentence: str) -> None:
    for name in ("text.tgz", "mine.dev.de"):
        (text / name).write_bytes(b"its content")
    (text / "mine.dev.en").write_bytes((text / "dev.en").read_bytes())
    given = {"name": "mine", "source": "data/train.en.gz", "target": "data/train.de.gz", "dev": ("dev.en", "dev.de")}
    with pytest.raises((BadConfiguration, Fault, ValueError)) as found:
        new(**given | words)
    assert sentence in f"{found.value}"
    assert not list(text.glob("*.toml"))
    assert (text / "mine.dev.de").read_bytes() == b"its content"


def test_latin_1_is_seen(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = demo_corpus.content("demo/train.de").decode(errors="replace")
    (text / "latin.de").write_bytes(lines.encode("latin-1", "replace"))
    new("mine", source="data/train.en.gz", target="latin.de", dev=("dev.en", "dev.de"))
    said = capsys.readouterr().err
    assert "invalid_unicode: " in said
    assert "pairs are not UTF-8; convert the file, for example by iconv" in said
    assert "the run would stop at clean: its filters reject" in said


def test_mistakes_in_sets_are_seen(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = {"source": "data/train.en.gz", "target": "data/train.de.gz"}
    (text / "latin.de").write_bytes((text / "dev.de").read_bytes().decode().encode("latin-1"))
    new("mine", **train, dev=("dev.de", "dev.en"), test=(("dev.en", "latin.de"), ("dev.en", "dev.de")))
    said = capsys.readouterr().err
    assert "warning: dev: the sides look exchanged" in said
    assert "warning: test1: " in said
    assert "warning: test2" not in said
    new("again", **train, dev=("data/train.en.gz", "data/train.de.gz"))
    assert "have a line of a dev or test set; is a file given twice?" in capsys.readouterr().err


def test_files_of_one_name_stay_two_files(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("en", "de"):
        (text / side).mkdir()
        (text / side / "text.txt").write_bytes(demo_corpus.content(f"demo/train.{side}"))
    new("mine", source="en/text.txt", target="de/text.txt", dev=("dev.en", "dev.de"), languages=("en", "qq"))
    part = find_run("mine.toml").corpus.parts[0]
    assert [each.file.path for each in (part.source, part.target)] == ["mine/en/text.txt", "mine/de/text.txt"]
    assert "nothing is known of the language 'qq'" in capsys.readouterr().err


def test_a_file_like_another(text: Path) -> None:
    words = {"source": "data/train.en.gz", "target": "data/train.de.gz", "dev": ("dev.en", "dev.de")}
    new("mine", **words)
    new("other", **words, like="mine.toml")
    assert (text / "other.toml").read_text().startswith('extends = "mine.toml"\n')
    assert find_run("other.toml").model == find_run("mine.toml").model


def test_filters_follow_the_languages() -> None:
    names = {
        each: [rule.name for rule in languages.standard_filters("en", each, Length(), ()).rules]
        for each in ("ru", "ja", "nl", "qq")
    }
    assert "script" in names["ru"]
    assert "language" not in names["ru"], "its common words are not known"
    assert not {"length_ratio", "overlong_word", "script"} & set(names["ja"])
    assert "script" not in names["qq"]
    russian = languages.standard_filters("en", "ru", Length(), ()).rules
    assert [rule.target for rule in russian if isinstance(rule, languages.Script)] == ["Cyrillic"]
    assert [default_size(n) for n in (100, 50_000, 3_000_000)] == ["tiny", "small", "base"]
