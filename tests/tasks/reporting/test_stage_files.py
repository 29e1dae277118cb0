"""Files of stages that are too large for MLflow's pages: what of them is shown, and that it is said."""

import json
from pathlib import Path

import pytest

from tasks.reporting import stage_files
from tasks.reporting.stage_files import log_end, table, whole


def test_of_a_large_table_the_first_rows_are_shown_and_a_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(number, "ä" * 50) for number in range(100)]
    every = json.loads(table("t.json", ("n", "text"), rows).content)
    assert every == {"columns": ["n", "text"], "data": [list(row) for row in rows]}
    monkeypatch.setattr(stage_files, "STAGE_FILE_BYTES", 5_000)
    cut = table("t.json", ("n", "text"), rows)
    shown = json.loads(cut.content)["data"]
    assert len(cut.content) <= 5_000
    assert shown[:-1] == every["data"][: len(shown) - 1]
    assert shown[-1][0].startswith(f"the first {len(shown) - 1} of 100 rows")


def test_of_a_large_log_the_last_lines_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "job.log"
    log.write_text("".join(f"line {number}\n" for number in range(1_000)))
    assert log_end(log).content == log.read_bytes()
    monkeypatch.setattr(stage_files, "STAGE_FILE_BYTES", 1_000)
    said, first, *_, last = log_end(log).content.decode().splitlines()
    assert "of 8,890 bytes" in said
    assert (first.split()[0], last) == ("line", "line 999")
    assert len(log_end(log).content) <= 1_000
    log.write_text("")
    assert log_end(log).content == b"(the job printed nothing)\n", "MLflow would show an empty page"


def test_a_file_is_whole_or_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.html").write_text("<p>")
    monkeypatch.setattr(stage_files, "WHOLE_FILE_BYTES", 2)
    (found,) = whole(tmp_path / "page.html", tmp_path / "missing.html")
    assert found.name == "page.html.txt"
    assert b"has 3 bytes" in found.content
