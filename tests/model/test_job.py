"""Tests of jobs: they end with a reason, and their metrics survive a kill while a line is written."""

import errno
import json
import sys
from pathlib import Path

import pytest
import torch

from model.errors import JobError
from model.job import Facts, Job, Metrics, classify_error, run_job, write_exit


@pytest.mark.parametrize(
    ("error", "reason", "excerpt"),
    [
        (JobError("bad_data", "x.arrow is cut"), "bad_data", "x.arrow is cut"),
        (ValueError("model.heads is 0"), "bad_configuration", "model.heads is 0"),
        (OSError(errno.ENOSPC, "No space", "a/b"), "no_space", "a/b"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried 5 GiB"), "out_of_memory", "did not fit into memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out_of_memory", "did not fit"),
        (MemoryError(), "out_of_memory", "did not fit"),
        (KeyError("x"), "failed", "KeyError"),
    ],
)
def test_every_failure_has_a_reason_and_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str, excerpt: str
) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"config": {}, "inputs": {}, "out": str(tmp_path / "out"), "site": {"threads": 1}}))
    monkeypatch.setattr(sys, "argv", ["job", str(job)])

    def work(_: Job) -> Facts:
        raise error

    with pytest.raises(SystemExit) as end:
        run_job(work)
    assert end.value.code == 1
    answer = json.loads((tmp_path / "out" / "exit.json").read_text())
    assert answer["reason"] == reason == classify_error(error)[0]
    assert excerpt in answer["message"]
    assert "\n" not in answer["message"]


def test_only_rank_0_reports_done_with_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"config": {}, "inputs": {}, "out": str(tmp_path), "site": {"a_later_setting": 1}}))
    monkeypatch.setattr(sys, "argv", ["job", str(job)])
    monkeypatch.setenv("RANK", "1")
    run_job(lambda _: {})
    assert not (tmp_path / "exit.json").exists()
    monkeypatch.setenv("RANK", "0")
    run_job(lambda _: {"pairs": 3})
    assert json.loads((tmp_path / "exit.json").read_text()) == {"reason": "done", "message": "", "facts": {"pairs": 3}}


def test_a_rank_that_failed_later_does_not_hide_the_cause(tmp_path: Path) -> None:
    write_exit(tmp_path, "out_of_memory", "a batch did not fit", {})
    write_exit(tmp_path, "failed", "RuntimeError: connection closed by peer", {})
    assert json.loads((tmp_path / "exit.json").read_text())["reason"] == "out_of_memory"
    (tmp_path / "exit.json").unlink()
    write_exit(tmp_path, "failed", "RuntimeError: connection closed by peer", {})
    write_exit(tmp_path, "out_of_memory", "a batch did not fit", {})
    assert json.loads((tmp_path / "exit.json").read_text())["reason"] == "out_of_memory"


@pytest.mark.parametrize("content", ["", "{}", '{"config": {}, "inputs": [], "out": "x"}'])
def test_an_invalid_job_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "job.json").write_text(content)
    with pytest.raises(JobError, match=r"job.json is not a valid job file"):
        Job.read(tmp_path / "job.json")


def test_a_torn_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    Metrics(tmp_path).write(1, 2, {"loss": 3.5})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"time": 1, "do')
    Metrics(tmp_path).write(2, 2, {"loss": 3.0})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["done"], row["total"], row["loss"]) for row in rows] == [(1, 2, 3.5), (2, 2, 3.0)]
