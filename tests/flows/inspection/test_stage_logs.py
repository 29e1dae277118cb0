"""``repro logs``: which start it means, and what it says of a stage that was cut off or that another start makes."""

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dead_process import dead_process
from made_up_roots import record

from flows.commands.logs import LINES, logs
from flows.commands.status import status
from flows.inspection.stage_logs import newest_start, stage_logs
from flows.runner.artifact_names import ArtifactName, parse_name
from infra.errors import BadConfiguration, Fault
from infra.processes.identity import process_identity
from infra.processes.locks import file_lock
from infra.store.local import LocalStore

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
LATER = BEGAN + timedelta(minutes=1)
TRAIN = {"stage": "train", "key": "k1", "state": "miss"}
INTERRUPTED = {**TRAIN, "state": "failed", "failures": ["KeyboardInterrupt: "]}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """A root with the unfinished folder of a training of 50 measurements."""
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    store = LocalStore(tmp_path)
    rows = "".join(f'{{"done": {n}, "total": 99}}\n' for n in range(50))
    (store.begin("train", "k1", {"": "k1"}) / "metrics.jsonl").write_text(rows)
    return store


def test_a_training_that_is_not_at_work_is_shown_only_in_place_of_nothing(store: LocalStore) -> None:
    record(store.root, "mine", BEGAN, [TRAIN], outcome="RUNNING", process=process_identity())
    start = newest_start(store, parse_name("mine"))
    assert [log.row.stage for log in stage_logs(store, start, parse_name("mine"))] == ["train"]
    assert stage_logs(store, start, parse_name("mine"), finished=False) == []


def test_the_start_at_work_is_shown_not_a_newer_one_that_was_interrupted(
    store: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store.root, "mine", BEGAN, [TRAIN], outcome="RUNNING", process=process_identity())
    record(store.root, "mine", LATER, [INTERRUPTED], outcome="KILLED", process=dead_process(), overrides=["a=1"])
    with file_lock(store.lock_file("train", "k1"), lambda _: None):
        logs("mine")
        out, said = capsys.readouterr()
        assert "mine: train is at work; " in said
        assert said.endswith(f"mine, begun {BEGAN.astimezone():%Y-%m-%d %H:%M}, is RUNNING\n")
        assert len(out.splitlines()) == LINES
        assert "10 earlier lines are left out; --all-lines prints them" in said
        logs("mine", every=True)
        assert len(capsys.readouterr().out.splitlines()) == 50
        logs("mine", overrides=("a=1",))
        out, said = capsys.readouterr()
    assert f"train was interrupted; process {os.getpid()} on " in said
    assert "makes the same artifact now; there is no log of it" in said
    assert out == "train was interrupted\n"
    assert "mine --set a=1, begun " in said
    assert ", is STOPPED; to resume it: repro run mine --set a=1" in said


def test_a_stage_that_a_run_at_work_has_not_reached_needs_to_run_or_waits(
    store: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    score = {"stage": "score", "item": "test", "key": "k2", "state": "waits"}
    record(store.root, "mine", BEGAN, [TRAIN, score], outcome="RUNNING", process=process_identity())
    logs("mine", "train")
    assert "mine: train needs to run; " in capsys.readouterr().err
    logs("mine", "score")
    assert "mine: score test waits for its inputs; " in capsys.readouterr().err


def test_a_stage_is_read_from_the_newest_start_that_reached_it(
    store: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store.root, "mine", BEGAN, [INTERRUPTED], outcome="KILLED", process=dead_process())
    record(store.root, "mine", LATER, [{"stage": "clean", "key": "k2", "state": "cached"}], overrides=["a=1"])
    logs("mine", "train")
    assert "mine: train was interrupted" in capsys.readouterr().err
    with pytest.raises(BadConfiguration, match="no start of mine has reached 'average'; the newest is FINISHED"):
        logs("mine", "average")
    logs("mine")
    assert f"mine, begun {BEGAN.astimezone():%Y-%m-%d %H:%M}, is STOPPED" in capsys.readouterr().err, "has a log"


def test_the_start_without_overrides_and_the_start_of_a_training_can_be_asked_for(
    store: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store.root, "mine", BEGAN, [{**TRAIN, "state": "cached"}])
    record(store.root, "mine", LATER, [{**INTERRUPTED, "key": "k2"}], outcome="KILLED", overrides=["a=1"])
    logs("mine", "train")
    assert capsys.readouterr().err.endswith("for the newest start without --set: repro logs mine train --set ''\n")
    logs("mine", "train", overrides=("",))
    said = capsys.readouterr().err
    assert "mine: train is cached" in said
    assert "without --set" not in said
    record(store.root, "mine", LATER + timedelta(minutes=1), [{**TRAIN, "state": "cached"}], outcome="FAILED")
    of_version = newest_start(store, ArtifactName("mine", "train"), key="k1")
    assert (of_version.started, of_version.outcome) == (BEGAN, "FINISHED"), "not a later failure with its training"
    with pytest.raises(BadConfiguration, match="no stage of mine began"):
        newest_start(store, ArtifactName("mine", "train"), key="k3")


def test_a_run_whose_process_was_killed_says_so(store: LocalStore, capsys: pytest.CaptureFixture[str]) -> None:
    score = {"stage": "score", "item": "test", "key": "k2", "state": "waits"}
    record(store.root, "mine", BEGAN, [TRAIN, score], outcome="RUNNING", process=dead_process())
    logs("mine", "score")
    assert "mine: score test was not reached; there is no log of it" in capsys.readouterr().err
    logs("mine")
    said = capsys.readouterr().err
    assert "mine: train was interrupted; " in said
    assert ", is KILLED: its process ended without a word, as by `kill -9` (signal 9)" in said


NOISE = """\
W1126 13:06:52.074000 15446 .venv/lib/torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal
Traceback (most recent call last):
  File "torch/distributed/run.py", line 1028, in main
    run(args)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 15446 got signal: 15
E1126 13:39:43.386000 2047 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1
Traceback (most recent call last):
  File "torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
Root Cause (first observed failure):
  traceback : Signal 9 (SIGKILL) received by PID 2969
============================================================
"""
OWN = """\
Traceback (most recent call last):
  File "model/train.py", line 45, in work
RuntimeError: no such kernel
failed: RuntimeError: no such kernel
"""


def test_what_torchrun_adds_is_left_out(store: LocalStore, capsys: pytest.CaptureFixture[str]) -> None:
    record(store.root, "mine", BEGAN, [INTERRUPTED], outcome="FAILED")
    folder = store.begin("train", "k1", {"": "k1"})
    (folder / "metrics.jsonl").unlink()
    chained = NOISE + "\nDuring handling of the above exception, another exception occurred:\n\n" + NOISE
    (folder / "job.log").write_text(OWN + chained + "preempted: asked to end\n" + NOISE)
    logs("mine")
    assert capsys.readouterr().out == f"{OWN}preempted: asked to end\ntrain was interrupted\n"
    logs("mine", every=True)
    assert NOISE in capsys.readouterr().out


def test_what_a_job_said_before_it_was_resumed_stands_before_the_later_measurements(
    store: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store.root, "mine", BEGAN, [INTERRUPTED], outcome="FAILED")
    folder = store.begin("train", "k1", {"": "k1"})
    rows = [{"done": done, "total": 9, "time": time.time() + at} for done, at in ((1, -60), (2, 60))]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "job.log").write_text("preempted\n")
    logs("mine")
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[:3]] == ["1/9", "preempted", "2/9"]
    moments = [datetime.now() + timedelta(seconds=seconds) for seconds in (-90, -30)]
    resumed = [f"{moment:%Y-%m-%d %H:%M:%S}  train resumes from update {n}\n" for n, moment in enumerate(moments)]
    (folder / "job.log").write_text("first\n" + "second\n".join(resumed) + "third\n")
    logs("mine")
    shown = capsys.readouterr().out.splitlines()[:7]
    assert [line.split()[-1] for line in shown] == ["first", "0", "1/9", "second", "1", "third", "2/9"]
    assert shown[1] == f"{moments[0]:%H:%M:%S}  train resumes from update 0"


def test_a_failure_that_was_recovered_from_does_not_read_as_the_end(
    store: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store.root, "mine", BEGAN, [{**INTERRUPTED, "failures": ["killed", "interrupted"]}], outcome="KILLED")
    logs("mine")
    said = capsys.readouterr().out.splitlines()[-2:]
    assert said == ["earlier, train was tried again after: killed", "train was interrupted"]


def test_why_a_run_failed_is_said_once(store: LocalStore, capsys: pytest.CaptureFixture[str]) -> None:
    failed = {**TRAIN, "state": "failed", "failures": ["no such kernel"]}
    record(store.root, "mine", BEGAN, [failed], outcome="FAILED", failure="train failed: no such kernel")
    logs("mine")
    assert "".join(capsys.readouterr()).count("no such kernel") == 1


def test_a_run_that_does_not_exist_is_told_from_one_that_never_began(store: LocalStore) -> None:
    record(store.root, "mine", BEGAN, [TRAIN])
    with pytest.raises(BadConfiguration, match="unknown run 'mein'; did you mean mine"):
        logs("mein")
    with pytest.raises(BadConfiguration, match="no stage of demo began in .*`repro plan` says"):
        logs("demo")


def test_status_names_the_stage_at_work(store: LocalStore, capsys: pytest.CaptureFixture[str]) -> None:
    record(store.root, "mine", BEGAN, [TRAIN], outcome="RUNNING", process=process_identity())
    with file_lock(store.lock_file("train", "k1"), lambda _: None), pytest.raises(Fault, match="no service"):
        status()
    assert (
        f"mine is at work since {BEGAN.astimezone():%Y-%m-%d %H:%M} in process {os.getpid()}: train\n"
        in capsys.readouterr().out
    )
