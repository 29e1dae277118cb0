"""A run small enough to be run often, and a launcher that does not start Python anew for each job."""

import hashlib
import os
import runpy
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flows.running import Request, run
from flows.runs import DEMO, RUNS, Run
from infra.launch import Job, raise_for_exit
from model.config import Averaging, Decoding, Model, Training
from tasks import demo_corpus, execution
from tasks.corpora import Corpus, EvaluationSet, File, Part, Text
from tasks.learn_bpe import Vocabulary
from tasks.shard import Sharding


class ForkLauncher:
    """Runs a job in a fork of this process, where torch is already loaded; what it prints goes to its log."""

    def run(self, job: Job, on_poll: Callable[[], None]) -> None:
        path = job.write()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                log = os.open(job.out / "job.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(log, 1)
                os.dup2(log, 2)
                sys.argv = [job.module, str(path)]
                runpy.run_module(job.module, run_name="__main__", alter_sys=True)
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
            finally:
                os._exit(status)
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            on_poll()
            if done:
                break
            time.sleep(0.02)
        raise_for_exit(job, os.waitstatus_to_exitcode(status), "")


def small_run(mirror: Path) -> Run:
    """A few hundred pairs of the embedded corpus, as files of a mirror, and a model that learns next to nothing."""

    def text(name: str, lines: int) -> Text:
        content = b"".join(line + b"\n" for line in demo_corpus.content(f"demo/{name}").split(b"\n")[:lines])
        path = mirror / "small" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return Text(File(f"small/{name}", sha256=hashlib.sha256(content).hexdigest()))

    return replace(
        DEMO,
        name="small",
        about="for tests",
        corpus=Corpus("small", "en", "de", (Part("small", text("train.en", 600), text("train.de", 600)),)),
        sets=tuple(EvaluationSet(name, text(f"{name}.en", 12), text(f"{name}.de", 12)) for name in ("dev", "test")),
        vocabulary=Vocabulary(size=400),
        sharding=Sharding(max_pieces=80),
        model=Model(layers=1, d_model=16, d_ff=32, heads=2, d_k=8, d_v=8, norm="pre"),
        training=Training(updates=6, batch_tokens=400, warmup=2, checkpoint_every=2, keep=3, dev_every=3),
        averaging=Averaging(2),
        decoding=Decoding(beam=2, max_extra=3),
    )


@pytest.fixture(scope="session")
def finished_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which the run ``small`` is done, with its mirror beside; copy it before you harm it."""
    import torch  # noqa: F401  loaded once, before forks

    base = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_ROOT", str(base / "root"))
        patch.setenv("REPRO_MIRRORS", str(base / "mirror"))
        patch.setenv("REPRO_THREADS", "1")
        patch.setattr(execution, "LocalLauncher", ForkLauncher)
        patch.setitem(RUNS, "small", small_run(base / "mirror"))
        run(Request("small"))
    return base / "root"


@pytest.fixture
def small(finished_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished root, in force; returns it."""
    root = tmp_path / "root"
    shutil.copytree(finished_root, root)
    shutil.rmtree(root / "stamps", ignore_errors=True)
    monkeypatch.setenv("REPRO_ROOT", str(root))
    monkeypatch.setenv("REPRO_MIRRORS", str(finished_root.parent / "mirror"))
    monkeypatch.setenv("REPRO_THREADS", "1")
    monkeypatch.setattr(execution, "LocalLauncher", ForkLauncher)
    monkeypatch.setitem(RUNS, "small", small_run(finished_root.parent / "mirror"))
    return root
