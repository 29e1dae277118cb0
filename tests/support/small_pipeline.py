"""A run of a few seconds, in this process or in another, and a launcher that forks instead of starting Python."""

import base64
import gc
import hashlib
import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from flows.reproduce import reproduce
from flows.runner.outcome import Outcome
from flows.runner.request import ResolvedRun, RunPlan, RunRequest, make_plan
from flows.runner.run import running
from flows.runs import DEMO, Run
from flows.views.terminal import TerminalDisplay
from infra.launch.job import JobSpec, raise_for_exit
from model.config import Averaging, Decoding, Model, Training
from tasks.corpus.catalogue import Corpus, EvaluationSet, File, Part, Text
from tasks.demo import corpus as demo_corpus
from tasks.evaluation.html import Picture
from tasks.stages.learn_bpe import Vocabulary
from tasks.stages.shard import Sharding

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
"""A picture of one pixel."""


def draw_a_dot(alt: str, _drawing: Callable[[Any], bytes]) -> tuple[Picture, bytes]:
    """Replaces ``report.draw`` where no test looks at the pictures, which cost half of the small run's CPU time."""
    return Picture(alt, "data:,", "data:,"), DOT


class ForkLauncher:
    """Runs a job in a fork of this process, where torch is already loaded; its output goes to its log."""

    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        job.write()
        path = job.path
        child = os.fork()
        if child == 0:
            gc.freeze()  # what only the parent's threads can end, as a translator of CTranslate2, is not collected here
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
    """600 pairs of the embedded corpus, as files of a mirror, and a tiny model."""

    def text(name: str, lines: int) -> Text:
        content = b"".join(line + b"\n" for line in demo_corpus.content(f"demo/{name}").split(b"\n")[:lines])
        path = mirror / "small" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:  # another process may be reading it
            path.write_bytes(content)
        return Text(File(f"small/{name}", sha256=hashlib.sha256(content).hexdigest()))

    return replace(
        DEMO,
        name="small",
        about="for tests",
        min_champion_bleu=0.0,  # it learns next to nothing
        corpus=Corpus("small", "en", "de", (Part("small", text("train.en", 600), text("train.de", 600)),)),
        sets=tuple(EvaluationSet(name, text(f"{name}.en", 12), text(f"{name}.de", 12)) for name in ("dev", "test")),
        vocabulary=Vocabulary(size=400),
        sharding=Sharding(max_pieces=80),
        model=Model(layers=1, d_model=16, d_ff=32, heads=2, d_k=8, d_v=8, norm="pre"),
        training=Training(updates=120, batch_tokens=400, warmup=20, checkpoint_every=40, keep=3, dev_every=60),
        averaging=Averaging(2),
        decoding=Decoding(beam=2, max_extra=3),
    )


def run_small(
    request: RunRequest | ResolvedRun | RunPlan = RunRequest("small"),  # noqa: B008
    display: type[TerminalDisplay] = TerminalDisplay,
) -> Outcome:
    """Run a request without Prefect."""
    resolved = request.resolve() if isinstance(request, RunRequest) else request
    planned = make_plan(resolved) if isinstance(resolved, ResolvedRun) else resolved
    with running(planned, display()) as outcome:
        reproduce(planned.resolved.run, planned.resolved.is_modified, planned.initial)
    return outcome


RUN_FILE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from dataclasses import replace
from pathlib import Path
from small_pipeline import small_run
SMALL = small_run(Path({{mirror!r}}))
LONG = replace(SMALL, training=replace(SMALL.training, updates=800, warmup=50, checkpoint_every=40, dev_every=200))
"""
PROGRAM = f"""
import json, pathlib, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
mirror, fields = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
fields["overrides"] = tuple(fields.get("overrides", ()))
if fields.get("until") != "shard":
    import torch
from flows.runner.request import RunRequest
from flows.runs import RUNS
from small_pipeline import ForkLauncher, draw_a_dot, run_small, small_run
from infra.processes import signals
from tasks.engine import jobs
from tasks.stages import report
report.draw = draw_a_dot
jobs.LAUNCHERS["local"] = ForkLauncher
RUNS["small"] = small_run(mirror)
print("ready", flush=True)
sys.stdin.readline()
signals.install_handlers()
outcome = signals.shielded(lambda: run_small(RunRequest("small", **fields)))
print(json.dumps([(row.stage, row.item, row.state) for row in outcome.rows]))
"""


def write_run_file(path: Path, mirror: Path) -> Path:
    """Write a file of runs for ``repro run FILE:SMALL`` (or LONG, ten seconds of training)."""
    path.write_text(RUN_FILE.format(mirror=f"{mirror}"))
    return path


@contextmanager
def start_small(
    mirror: Path, root: Path | str, *, hold: bool = False, variables: Mapping[str, str] = NO_VARIABLES, **fields: Any
) -> Iterator[subprocess.Popen[str]]:
    """Start a request for ``small`` in its own process, which prints its stages' states; kill it at the end.

    With ``hold`` the process imports everything, then waits for a line on its stdin. ``variables`` go into its
    environment, ``fields`` into the request.
    """
    command = [sys.executable, "-c", PROGRAM, f"{mirror}", json.dumps(fields)]
    environment = os.environ | {"REPRO_ROOT": f"{root}"} | variables
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, env=environment, text=True, **pipes)
    try:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        if not hold:
            print(file=process.stdin, flush=True)
        yield process
    finally:
        process.kill()
        process.communicate()


def processes(root: Path | str, word: str = "") -> list[psutil.Process]:
    """Processes with this REPRO_ROOT and ``word`` in their command line, except this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("REPRO_ROOT") != f"{root}" or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.pid != os.getpid() and word in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def all_gone(root: Path) -> bool:
    """Whether all processes of a root end within the time that a last checkpoint is given."""
    for _ in range(450):
        if not processes(root):
            return True
        time.sleep(0.1)
    return False
