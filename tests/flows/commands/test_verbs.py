"""Verbs that people type: what they do to a finished run, and where a wrong word leads."""

import os
import re
import shutil
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows import cli
from flows.cli import COMMANDS, DESTROYING, OTHER_WORDS
from flows.commands.delete import delete
from flows.commands.down import down
from flows.commands.logs import logs
from flows.commands.stop import stop
from flows.inspection.deletion import plan_deletion, read_by_training
from flows.inspection.garbage_collection import find_garbage
from flows.runner import records, stopping
from flows.runner.recorded_runs import RecordedRun, read_headers, read_run
from flows.runner.records import FINISHED, KILLED, RUNNING
from flows.runner.request import RunRequest, plan
from flows.web.at_work import announced
from infra.errors import BadConfiguration, Fault
from infra.launch.batch_queue import QueueLauncher
from infra.processes.identity import process_identity
from infra.processes.locks import file_lock
from infra.site import configured_site, open_store
from infra.tracking.registry import resolve, versions
from tests.flows.test_cli import call

LeftJob = tuple[RecordedRun, str, list[str]]
"""A killed start, the key of its training, whose job a queue still has, and the names of jobs that were cancelled."""


@pytest.mark.parametrize(
    "word", ["delte", "dlete", "gcc", "dow", "backp", "stp", "restore", *OTHER_WORDS, "rm", "remove"]
)
def test_a_wrong_word_never_proposes_what_destroys(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, word) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    if word in OTHER_WORDS:
        assert OTHER_WORDS[word] in COMMANDS
        assert f"use `repro {OTHER_WORDS[word]}`" in said
    elif word in cli.REMOVAL_WORDS:
        assert "after a question" in said
    else:
        proposed = said.partition("did you mean")[2]
        assert not [name for name in DESTROYING if name in proposed]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run demo --seeds 2,3 --promote-better", "allowed is that with the run's own seed 1 in --seeds"),
        ("run demo --seeds 1,2 --all-scores", "--all-scores is given, allowed is that without --seeds"),
        ("trace demo test:1 --out x.png", "--out is x.png, allowed is that with --attention"),
        ("trace demo test:1 --attention --target x", "--target is for a sentence"),
        ("show demo/clean --path --json", "--path and --json are given, allowed is one of them"),
        ("stop demo/train", "allowed is a whole run, such as demo"),
        ("score --forget google new.txt", "--forget is given, allowed beside it is only --on"),
    ],
)
def test_an_option_without_effect_is_refused(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *words.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_logs_are_the_measurements_of_a_job_and_nothing_is_at_work_to_stop(capsys: pytest.CaptureFixture[str]) -> None:
    logs("small", "train")
    out, said = capsys.readouterr()
    assert "loss" in out
    assert re.search("small, begun .*, is FINISHED", said)
    with pytest.raises(BadConfiguration, match="did you mean train"):
        logs("small", "tran")
    with pytest.raises(BadConfiguration, match="unknown run 'other'; `repro history` lists"):
        logs("other")
    with pytest.raises(Fault, match="small is not at work"):
        stop("small")
    with pytest.raises(BadConfiguration, match="no run 'other' is on record"):
        stop("other")


@pytest.mark.usefixtures("small")
def test_what_cannot_be_stopped_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    start = next(read_headers(configured_site().root, "small"))

    def refuse(*_: int) -> None:
        raise PermissionError

    def end(*_: int) -> None:
        records.change(start.path, outcome=FINISHED)
        raise ProcessLookupError

    records.change(start.path, outcome=RUNNING, process=process_identity())
    monkeypatch.setattr(stopping.os, "kill", refuse)
    with pytest.raises(Fault, match=f"process {os.getpid()} of .*: only that user can stop it"):
        stop("small")
    monkeypatch.setattr(stopping.os, "kill", end)
    stop("small")
    assert "small finished before it could be stopped" in capsys.readouterr().out


@pytest.fixture
def left_job(small: Path, monkeypatch: pytest.MonkeyPatch) -> LeftJob:
    start = next(read_headers(small, "small"))
    records.change(start.path, outcome=KILLED)
    key = next(row.key for row in read_run(start.path).stages if row.stage == "train")
    out = open_store(configured_site()).root / "train" / f"{key}.partial-1"
    out.mkdir()
    (out / "job.sh").touch()
    ended: list[str] = []
    queue = SimpleNamespace(file="job.sh", find=lambda _: "job 1")
    launcher = QueueLauncher(queue)  # type: ignore[arg-type]
    monkeypatch.setattr(launcher, "end", lambda name, _: not ended.append(name))
    monkeypatch.setitem(stopping.LAUNCHERS, "local", lambda: launcher)
    return start, key, ended


def test_a_queue_keeps_a_job_that_another_run_waits_for(left_job: LeftJob) -> None:
    _, key, ended = left_job
    lock = open_store(configured_site()).lock_file("train", key)
    with file_lock(lock, print), pytest.raises(Fault, match="small is not at work"):
        stop("small")
    assert not ended
    stop("small")
    assert ended == ["job 1"]


@pytest.mark.parametrize("is_at_work", [False, True])
def test_a_job_left_by_an_older_start_is_ended_unless_a_running_start_has_its_key(
    left_job: LeftJob, is_at_work: bool
) -> None:
    site, (older, _, ended) = configured_site(), left_job
    if is_at_work:
        running = older.path.with_name(f"{older.started - timedelta(hours=1):{records.NAME_FORMAT}}.json")
        shutil.copy(older.path, running)
        records.change(running, outcome=RUNNING, process=process_identity())
    else:
        records.write(site.root, "small", vars(RunRequest("small")), [], "FAILED", older.started + timedelta(hours=1))
    found = stopping.stop_left_jobs(site, "small", (), print)
    assert (found.path if found else None, ended) == ((None, []) if is_at_work else (older.path, ["job 1"]))


@pytest.mark.usefixtures("small")
def test_servers_that_a_run_in_a_terminal_uses_stay_up_unless_forced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = configured_site().root
    running = SimpleNamespace(folder=root.resolve() / "service")
    monkeypatch.setattr("flows.commands.down.running_service", lambda _: running)
    start = next(read_headers(root, "small"))
    down()
    records.change(start.path, outcome=RUNNING, process=process_identity())
    with pytest.raises(BadConfiguration, match="--force: repro stop small$"):
        down()
    down(force=True)
    records.change(start.path, process="machine/boot/1/2/3")
    down()
    records.change(start.path, outcome=FINISHED)
    assert capsys.readouterr().err.count("was not running") == 3


@pytest.mark.usefixtures("small")
def test_a_version_is_deleted_with_what_serves_it_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = configured_site()
    planned = plan_deletion(site, resolve(site.tracking, "small/1"))
    with pytest.raises(BadConfiguration, match="small/1 is champion"):
        delete("small/1", yes=True)
    with pytest.raises(BadConfiguration, match="allowed is one by its number"):
        delete("small@champion", yes=True, aliased=True)
    assert versions(site.registry)
    record = next(read_headers(site.root, "small")).path
    with pytest.raises(BadConfiguration, match="nobody can be asked"):
        delete("small/1", aliased=True)
    with monkeypatch.context() as patch, pytest.raises(Fault, match="nothing was deleted"):
        patch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "n\n"))
        delete("small/1", aliased=True)
    said = capsys.readouterr().err
    assert f"so that `repro gc --delete` frees them, add --records, or later: rm {record}" in said
    assert "serves" not in said
    with announced(site.root, ["other/1", "small/1"], "http://x"):
        delete("small/1", yes=True, aliased=True, records=True)
    said = capsys.readouterr().err
    assert re.search("serves other/1, small/1 at http://x since .*; it keeps", said)
    assert not versions(site.registry)
    assert not record.exists()
    assert planned.version.tags["key.average"] in {each.key for each in find_garbage(site).removable}
    assert planned.folder
    assert not planned.folder.exists()
    assert [row.stage for row in plan(RunRequest("small")).rows if row.state != "cached"] == ["register"]


def test_a_version_whose_training_began_from_another_is_its_child() -> None:
    label = SimpleNamespace(tags={"key.average": "a1", "key.train": "t1"})
    child = SimpleNamespace(tags={"key.average": "a2", "key.train": "t2"})
    inputs = {("train", "t1"): (("shard", "s"),), ("train", "t2"): (("shard", "s"), ("average", "a1"))}
    graph: Any = SimpleNamespace(inputs=inputs.__getitem__)
    found = [("average", "a1") in read_by_training(each, graph) for each in (label, child)]  # type: ignore[arg-type]
    assert found == [False, True]
