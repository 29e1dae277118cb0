"""Verbs that people type: what they do to a finished run, and where a wrong word leads."""

import sys

import pytest

from flows import cli
from flows.cli import COMMANDS, DESTROYING, OTHER_WORDS
from flows.commands.delete import delete
from flows.commands.down import down
from flows.commands.logs import logs
from flows.commands.stop import stop
from flows.inspection.deletion import plan_deletion
from flows.runner import records
from flows.runner.recorded_runs import read_headers
from flows.runner.records import FINISHED, RUNNING
from flows.runner.request import RunRequest, plan
from infra.errors import BadConfiguration, Fault
from infra.processes.identity import process_identity
from infra.site import configured_site
from infra.tracking.registry import resolve, versions


@pytest.mark.parametrize("word", ["delte", "dlete", "gcc", "dow", "backp", *OTHER_WORDS, "rm", "remove"])
def test_a_wrong_word_never_proposes_what_destroys(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["repro", word])
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr().err
    assert (end.value.code, said.count("\n")) == (2, 1)
    if word in OTHER_WORDS:
        assert OTHER_WORDS[word] in COMMANDS
        assert f"use `repro {OTHER_WORDS[word]}`" in said
    elif word in cli.REMOVAL_WORDS:
        assert "after a question" in said
    else:
        proposed = said.partition("did you mean")[2]
        assert not [name for name in DESTROYING if name in proposed]


@pytest.mark.usefixtures("small")
def test_logs_are_the_measurements_of_a_job_and_nothing_is_at_work_to_stop(capsys: pytest.CaptureFixture[str]) -> None:
    logs("small", "train")
    out, said = capsys.readouterr()
    assert "loss" in out
    assert "small is FINISHED" in said
    with pytest.raises(BadConfiguration, match="did you mean train"):
        logs("small", "tran")
    with pytest.raises(BadConfiguration, match="no start of other"):
        logs("other")
    with pytest.raises(Fault, match="small is not at work"):
        stop("small")
    with pytest.raises(BadConfiguration, match="no run 'other' is on record"):
        stop("other")


@pytest.mark.usefixtures("small")
def test_servers_that_a_run_in_a_terminal_uses_stay_up_unless_forced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = configured_site().root
    monkeypatch.setattr("flows.commands.down.running_service", lambda _: "a service")
    start = next(read_headers(root, "small"))
    down()
    records.change(start.path, outcome=RUNNING, process=process_identity())
    with pytest.raises(BadConfiguration, match="--force: repro stop small$"):
        down()
    down(force=True)
    records.change(start.path, outcome=FINISHED)
    assert capsys.readouterr().err.count("was not running") == 2


@pytest.mark.usefixtures("small")
def test_a_version_is_deleted_with_what_serves_it_alone(capsys: pytest.CaptureFixture[str]) -> None:
    site = configured_site()
    planned = plan_deletion(site, resolve(site.tracking, "small/1"))
    with pytest.raises(BadConfiguration, match="small/1 is champion"):
        delete("small/1", yes=True)
    with pytest.raises(BadConfiguration, match="allowed is one by its number"):
        delete("small@champion", yes=True, aliased=True)
    assert versions(site.registry)
    delete("small/1", yes=True, aliased=True)
    assert not versions(site.registry)
    assert planned.folder
    assert not planned.folder.exists()
    assert [row.stage for row in plan(RunRequest("small")).rows if row.state != "hit"] == ["register"]
