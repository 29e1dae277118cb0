"""Bad input and killed runs: one clear error, nothing lost, nothing half-published, and the next run completes."""

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_pipeline import ForkLauncher, all_gone, run_small, small_run

from flows.runner.outcome import StageFailed
from flows.runner.request import RunRequest, plan
from flows.runs import RUNS, Run
from infra.errors import BadConfiguration
from infra.store.local import Store
from tasks.cleaning.filters import Filters, Length
from tasks.corpus.catalogue import Corpus, File, Part
from tasks.engine import jobs

HERE = Path(__file__).parents[1] / "support"
PIPELINE = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import pathlib, torch
from flows.runs import RUNS
from small_pipeline import ForkLauncher, run_small, small_run
from infra.processes import signals
from tasks.engine import jobs
jobs.LAUNCHERS["local"] = ForkLauncher
RUNS["small"] = small_run(pathlib.Path(sys.argv[1]))
print("ready", flush=True)
signals.install_handlers()
print([(row.stage, row.item, row.state) for row in signals.run_shielded(run_small).rows])
"""


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty root, a mirror with the small run's files, and that run among the runs."""
    monkeypatch.setenv("REPRO_MIRRORS", str(tmp_path / "mirror"))
    monkeypatch.setenv("REPRO_THREADS", "1")
    monkeypatch.setitem(jobs.LAUNCHERS, "local", ForkLauncher)
    monkeypatch.setitem(RUNS, "small", small_run(tmp_path / "mirror"))
    return tmp_path / "mirror"


def change(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> Run:
    run = replace(RUNS["small"], **fields)
    monkeypatch.setitem(RUNS, "small", run)
    return run


def failure() -> str:
    with pytest.raises(StageFailed) as failed:
        run_small()
    return str(failed.value)


def nothing_half_published(root: Path) -> bool:
    """Whether failed attempts left nothing but what a training resumes from."""
    return not [path for path in root.glob("*/*.partial-*") if "-resume-" not in path.name]


def test_a_wrong_file_names_both_sums_and_is_not_kept(mirror: Path, tmp_path: Path) -> None:
    path = mirror / "small" / "train.de"
    whole = path.read_bytes()
    path.write_bytes(whole + b"x")
    told = failure()
    assert told.startswith("download small/train.de failed: ")
    assert RUNS["small"].corpus.parts[0].target.file.sha256 in told
    assert nothing_half_published(tmp_path / "repro")
    path.write_bytes(whole)
    assert run_small(RunRequest("small", until="download")).rows[0].state == "cached"


def test_unequal_line_counts_are_both_named(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    run = RUNS["small"]
    short = b"\n".join((mirror / "small" / "train.de").read_bytes().split(b"\n")[:599]) + b"\n"
    (mirror / "small" / "short.de").write_bytes(short)
    part = run.corpus.parts[0]
    torn = replace(part.target, file=File("small/short.de", sha256=hashlib.sha256(short).hexdigest()))
    change(monkeypatch, corpus=Corpus("small", "en", "de", (Part("small", part.source, torn),)))
    told = failure()
    assert told.startswith("clean failed: ")
    assert "600" in told
    assert "599" in told


def test_filters_that_leave_nothing_are_named(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch, filters=Filters((Length(149, 150),)))
    assert "length" in failure().lower()


def test_a_vocabulary_larger_than_the_data_allows(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch, vocabulary=replace(RUNS["small"].vocabulary, size=90_000))
    told = failure()
    assert told.startswith("learn_bpe failed: vocabulary.size is 90000")


def test_limits_that_no_pair_meets(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch, sharding=replace(RUNS["small"].sharding, max_pieces=1))
    assert failure().startswith("shard train failed: ")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"training.batch_tokens": "80"},
            "sharding.max_pieces is 80, allowed is below training.batch_tokens",
        ),
        (
            {"training.updates": "2"},
            "averaging.count is 2, allowed is at most 1, the checkpoints",
        ),
        ({"vocabulary.joint": "false"}, "model.tied is True, allowed is false, as vocabulary.joint is false"),
        ({"averaging.count": "4"}, "averaging.count is 4, allowed is at most training.keep, which is 3"),
        (
            {"averaging.count": "1", "averaging.which": "best"},
            "averaging.which is 'best', allowed is last, where training.patience is 0",
        ),
        (
            {"model.attention": "torch", "training.batching": "packed"},
            "training.batching is 'packed', allowed is buckets where model.attention is torch",
        ),
    ],
)
def test_settings_that_cannot_go_together_are_refused_at_once(
    mirror: Path, changes: dict[str, str], sentence: str
) -> None:
    words = tuple(f"{name}={value}" for name, value in changes.items())
    with pytest.raises(BadConfiguration, match=sentence):
        plan(RunRequest("small", overrides=words))


def start(mirror: Path, root: Path) -> subprocess.Popen[str]:
    """Start the small run in its own process; returns once its imports are done."""
    command, environment = [sys.executable, "-c", PIPELINE, str(mirror)], os.environ | {"REPRO_ROOT": str(root)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_runs_at_once_share_every_stage(mirror: Path, tmp_path: Path) -> None:
    both = [start(mirror, tmp_path / "shared") for _ in range(2)]
    told = []
    for process in both:
        out, said = process.communicate(timeout=200)
        assert process.returncode == 0, said
        told.append(ast.literal_eval(out))
    for mine, yours in zip(*told, strict=True):
        assert mine[:2] == yours[:2]
        assert sorted((mine[2], yours[2])) == ["cached", "completed"], mine


@pytest.fixture
def running(mirror: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start(mirror, tmp_path / "killed")
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("moment", ["clean/*", "train/*", "register/*"])
def test_a_killed_run_completes_when_it_is_run_again(
    running: subprocess.Popen[str], finished_root: Path, tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "killed"
    while not list(root.glob(moment)):
        assert running.poll() is None, running.stderr and running.stderr.read()
        time.sleep(0.002)
    running.kill()
    running.wait(60)
    assert all_gone(root), "no process is left behind"
    monkeypatch.setenv("REPRO_ROOT", str(root))
    outcome = run_small()
    assert {row.state for row in outcome.rows} <= {"completed", "cached"}
    assert not list(root.glob("*/*.partial*"))
    row = next(row for row in outcome.rows if row.stage == "average")
    undisturbed, again = Store(finished_root).manifest("average", row.key), Store(root).manifest("average", row.key)
    assert undisturbed
    assert again
    assert again.content == undisturbed.content


def test_a_run_leaves_a_record(small: Path) -> None:
    record = json.loads(max((small / "runs" / "small").glob("*.json")).read_text())
    assert record["outcome"] == "FINISHED"
    assert len(record["stages"]) == len(plan(RunRequest("small")).rows)
