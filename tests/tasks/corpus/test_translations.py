"""Translations of other systems are the same lines in any format, and in the order of the set."""

import gzip
from html import escape
from pathlib import Path
from typing import Literal

import pytest

from infra.errors import BadData
from tasks.corpus.translations import read_side, read_translations

LINES = ["Ein Hund läuft.", "Zwei <Frauen> & ein Kind", "", "1\u2028000 Häuser"]
IDS = [f"test:{n}" for n in range(len(LINES))]


def xml(*systems: str) -> str:
    def hypothesis(system: str, line: str) -> str:
        return f'<hyp system="{system}"><p><seg id="1">{escape(line)}</seg></p></hyp>'

    docs = ("".join(hypothesis(system, f"{line} {system}".strip()) for system in systems) for line in LINES)
    return "<?xml version='1.0'?>\n<dataset>" + "".join(f"<doc>\n<src/>{doc}</doc>" for doc in docs) + "</dataset>"


def test_every_format_gives_the_same_lines(tmp_path: Path) -> None:
    text = "".join(f"{line}\n" for line in LINES)
    sgm = "<tstset>\n" + "".join(f'<seg id="{n}"> {line} </seg>\n' for n, line in enumerate(LINES)) + "</tstset>\n"
    mteval = f"<?xml version='1.0'?>\n<mteval>{''.join(f'<seg>{escape(line)}</seg>' for line in LINES)}</mteval>"
    for name, content in {"a.txt": text, "b.sgm": sgm, "c.xml": mteval}.items():
        (tmp_path / name).write_text(content)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
        expected = [" ".join(line.split()) for line in LINES] if name == "c.xml" else LINES
        assert read_side(tmp_path / name, "hyp") == read_side(tmp_path / f"{name}.gz", "hyp") == expected, name


def test_xml_with_several_systems_is_read_by_name(tmp_path: Path) -> None:
    file = tmp_path / "wmt.xml"
    file.write_text(xml("A", "B"))
    assert read_side(file, "hyp", "B")[:2] == ["Ein Hund läuft. B", "Zwei <Frauen> & ein Kind B"]
    with pytest.raises(BadData, match="by A, B: name one"):
        read_side(file, "hyp", "google")
    file.write_text(xml("A", "B").replace("hyp system", "ref translator").replace("/hyp", "/ref"))
    with pytest.raises(BadData, match="by A, B: save one"):
        read_side(file, "ref")
    file.write_text(xml("A")[:-30])
    with pytest.raises(BadData, match="cut short"):
        read_side(file, "hyp")


@pytest.mark.parametrize(
    ("name", "side", "allowed"),
    [
        *((f"x.{end}", "hyp", "a .tsv of ids and translations") for end in ("csv", "jsonl", "parquet", "tmx")),
        *((f"x.{end}", "ref", r"\.xml$") for end in ("csv", "parquet", "tsv")),
    ],
)
def test_a_table_is_refused_with_what_is_allowed(
    name: str, side: Literal["hyp", "ref"], allowed: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("id,text\n1,Ein Hund\n")
    with pytest.raises(BadData, match=rf"{name} is a table, allowed is text with .*{allowed}"):
        read_side(tmp_path / name, side)


def test_xml_of_other_sides_alone_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "wmt.xml"
    file.write_text(xml("A").replace("<src/>", '<src><seg id="1">A dog</seg></src>'))
    with pytest.raises(BadData, match="wmt.xml has no <ref>"):
        read_side(file, "ref")
    file.write_text("<dataset><src><seg>A dog</seg></src></dataset>")
    with pytest.raises(BadData, match="wmt.xml has no <hyp>"):
        read_side(file, "hyp")


def written(file: Path, lines: list[str]) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_ids_put_lines_in_the_order_of_the_set(tmp_path: Path) -> None:
    for ids in (IDS, ["1", "2", "3", "4"]):
        rows = [f"{name}\t{line}" for name, line in zip(ids, LINES, strict=True)][::-1]
        assert read_translations(written(tmp_path / "x.tsv", rows), IDS, "") == LINES
        assert read_translations(written(tmp_path / "x.tsv", ["id\thypothesis", *rows]), IDS, "") == LINES


@pytest.mark.parametrize(
    ("lines", "name", "sentence"),
    [
        ([f"{name}\tx" for name in IDS[:3]], "x.tsv", "x.tsv has the id 'test:3' 0 times"),
        ([f"dev:{n}\tx" for n in range(4)], "x.tsv", "'dev:0' 1 times, allowed is each of test:0, test:1, …, or"),
        ([], "x.tsv", "'1' 0 times"),
        ([*(f"{name}\tx" for name in IDS), "test:1\ty"], "x.tsv", "'test:1' 2 times"),
        ([*(f"{name}\tx" for name in IDS[:3]), "test:3"], "x.tsv", "1 columns in row 4"),
    ],
)
def test_lines_of_another_set_are_refused(lines: list[str], name: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BadData, match=sentence):
        read_translations(written(tmp_path / name, lines), IDS, "")
