"""``repro history``: what it prints, how far back, unknown runs."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dead_process import dead_process
from made_up_roots import record

from flows.commands.history import history, start_of
from infra.errors import BadConfiguration
from infra.processes.identity import process_identity
from infra.store.local import LocalStore


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    now = datetime.now(UTC)
    rows = [{"stage": "clean", "state": "cached"}, {"stage": "train", "seconds": 7200.0}]
    failed = {"stage": "download", "item": "a.gz", "state": "failed", "failures": ["no route", "no route"]}
    record(tmp_path, "demo", now - timedelta(weeks=9), rows)
    record(
        tmp_path, "demo", now - timedelta(hours=3), [failed], outcome="FAILED", failure="download a.gz failed: no route"
    )
    record(tmp_path, "demo", now - timedelta(hours=1), rows, commit="abc")


def test_starts_are_printed_with_reasons_and_sums(capsys: pytest.CaptureFixture[str]) -> None:
    history()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("demo  FINISHED, start 2  1 made, 1 cached  2 h 00 min")
    assert lines[1] == "    repro run demo  by ann, commit abc"
    assert lines[2].split("  ")[1:4] == ["demo", "FAILED", "0 made, 0 cached"]
    assert lines[4:6] == ["    download a.gz failed: no route", "    download a.gz was tried again after: no route"]
    assert lines[6] == "2 runs (1 FINISHED, 1 FAILED), 2 h 00 min in all"
    assert len(lines) == 7


def test_since_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    history("demo", since="2h", as_json=True)
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert (found["start_number"], found["outcome"]) == (2, "FINISHED")
    history(since="2020-01-01", as_json=True)
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 3
    history(since="0h")
    assert "no run began since" in capsys.readouterr().err


def test_a_run_at_work_lasts_until_now_and_a_dead_one_until_it_last_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = datetime.now(UTC) - timedelta(minutes=11)
    train = [{"stage": "train", "key": "k1", "state": "miss", "seconds": 0.0}]
    metrics = LocalStore(tmp_path).begin("train", "k1", {"": "k1"}) / "metrics.jsonl"
    metrics.touch()
    dead = record(tmp_path, "dead", began, train, outcome="RUNNING", process=dead_process())
    record(tmp_path, "alive", began, train, outcome="RUNNING", process=process_identity())
    for path, minute in ((dead, 1), (metrics, 3)):
        wrote = (began + timedelta(minutes=minute)).timestamp()
        os.utime(path, (wrote, wrote))
    for run, lasted in (("dead", "KILLED  0 made, 0 cached  3 min 00 s"), ("alive", "0 cached  11 min 00 s so far")):
        history(run)
        assert lasted in capsys.readouterr().out


def test_wrong_words_are_refused() -> None:
    with pytest.raises(BadConfiguration, match="'dmo' .*did you mean demo"):
        history("dmo")
    for text in ("soon", "4y", "99999999999w"):
        with pytest.raises(BadConfiguration, match=f"--since is '{text}'"):
            start_of(text)
