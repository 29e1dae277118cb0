"""A set leaves as it came: every line, in order, untouched."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from infra.errors import BadData
from infra.store.store import Artifact
from tasks.corpus.catalogue import EvaluationSet, File, Text
from tasks.stages.prepare_sets import prepare_sets


def prepared(out: Path, evaluation: EvaluationSet, folder: Path) -> pl.DataFrame:
    out.mkdir()
    sides = [Artifact("download", text.file.path, folder) for text in (evaluation.source, evaluation.target)]
    facts = prepare_sets.body(out, evaluation, *sides)
    assert [path.name for path in out.iterdir()] == ["pairs.parquet"]
    frame = pl.read_parquet(out / "pairs.parquet")
    assert facts == {"pairs": frame.height}
    return frame


def a_set(folder: Path, source: bytes, target: bytes) -> EvaluationSet:
    (folder / "dev.en").write_bytes(source)
    (folder / "dev.de").write_bytes(target)
    texts = (Text(File(name, sha256="0" * 64)) for name in ("dev.en", "dev.de"))
    return EvaluationSet("dev", *texts)


def test_lines_are_untouched_but_for_their_ends(tmp_path: Path) -> None:
    evaluation = a_set(tmp_path, "  two  blanks \n\nA\u2028B\te\u0301\n".encode(), b"x\r\n\r\ny\r\n")
    frame = prepared(tmp_path / "out", evaluation, tmp_path)
    assert frame.rows() == [("dev:0", "  two  blanks ", "x"), ("dev:1", "", ""), ("dev:2", "A\u2028B\te\u0301", "y")]


def test_a_set_with_noise_is_the_published_one_changed_by_the_rules_in_its_name(tmp_path: Path) -> None:
    clean = a_set(tmp_path, b"A  man.\nA dog\n", "Ein Mann.\nEine Straße\n".encode())
    frame = prepared(tmp_path / "a", replace(clean, name="dev+caps+nopunct"), tmp_path)
    assert frame.rows() == [
        ("dev+caps+nopunct:0", "A  MAN", "EIN MANN"),
        ("dev+caps+nopunct:1", "A DOG", "EINE STRASSE"),
    ]
    typos = [prepared(tmp_path / f"{n}", replace(clean, name="dev+url", noise_seed=n), tmp_path) for n in (1, 2)]
    assert typos[0]["source"].to_list() != typos[1]["source"].to_list()
    with pytest.raises(
        ValueError, match=r"set\.name is 'dev\+nonsense', allowed is .* NAME\+RULE of the rules caps, lower"
    ):
        replace(clean, name="dev+nonsense")


def test_unequal_or_empty_sides_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"dev\.en has 2 lines and dev\.de has 1"):
        prepared(tmp_path / "a", a_set(tmp_path, b"a\nb\n", b"c\n"), tmp_path)
    with pytest.raises(BadData, match="dev holds no line"):
        prepared(tmp_path / "b", a_set(tmp_path, b"", b""), tmp_path)


def test_text_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadData, match=r"dev: dev\.de is not UTF-8 in 1 lines, first in line 2; convert it, for example by iconv"
    ):
        prepared(tmp_path / "a", a_set(tmp_path, b"a\nb\n", "x\nö\n".encode("latin-1")), tmp_path)
