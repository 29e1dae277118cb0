"""What every job of this package shares: its ``job.json``, its progress as lines, its end as a reason.

    def work(job: Job) -> Facts: ...
    if __name__ == "__main__":
        main(work)

A job reads its input folders, writes into ``job.out`` and knows nothing of who started it. Whatever goes wrong
leaves ``exit.json`` with one of the reasons below and a sentence that a person can act on.
"""

import ctypes
import errno
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TextIO

import torch

from .config.keying import require
from .errors import ExitReason, JobError

Facts = dict[str, Any]
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class JobSettings:
    """Where and how a job computes. Ranks, parts and the kind of device draw other random numbers for dropout and round
    otherwise; nothing else here may show in the results."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int = 1
    compile: Literal["auto", "always", "never"] = "auto"
    """Whether the compiler makes the layers; auto: on GPUs."""
    micro_batch_tokens: int = 0
    """Most target pieces computed at once on one rank; 0 takes a rank's whole part."""
    log_seconds: float = 2.0
    resume_seconds: float = 60.0
    """Seconds between checkpoints that serve only to go on after a kill: more if one takes long, 0 after any update."""
    rank_timeout_seconds: float = 120.0
    """How long ranks wait for one that is slow, stuck or gone."""

    def __post_init__(self) -> None:
        require(self.device in ("auto", "cpu", "cuda"), "site.device", self.device, "auto, cpu or cuda")
        words = ("auto", "always", "never")
        require(self.compile in words, "site.compile", self.compile, ", ".join(words))
        require(self.threads >= 1, "site.threads", self.threads, "a whole number of at least 1")
        require(self.rank_timeout_seconds > 0, "site.rank_timeout_seconds", self.rank_timeout_seconds, "above 0")

    def torch_device(self) -> torch.device:
        """The device of this rank (LOCAL_RANK under torchrun). Raises JobError where there is no GPU."""
        if self.device == "cpu" or (self.device == "auto" and not torch.cuda.is_available()):
            return torch.device("cpu")
        if not torch.cuda.is_available():
            raise JobError("bad_configuration", "site.device is 'cuda', but this machine shows no CUDA device")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


@dataclass(frozen=True)
class Job:
    """One ``job.json``: configurations as plain JSON, input folders by name, the folder to write into."""

    config: Mapping[str, Any]
    inputs: Mapping[str, Path]
    out: Path
    site: JobSettings = field(default_factory=JobSettings)

    @staticmethod
    def read(path: Path) -> "Job":
        """Read a ``job.json``. Settings of other kinds of job are passed over."""
        try:
            job = json.loads(path.read_text())
            known = {
                name: job["site"][name] for name in JobSettings.__dataclass_fields__ if name in job.get("site", {})
            }
            inputs = {name: Path(folder) for name, folder in job["inputs"].items()}
            return Job(job["config"], inputs, Path(job["out"]), JobSettings(**known))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise JobError("bad_configuration", f"{path} is no job: {type(error).__name__} {error}") from error


class Metrics:
    """Progress as lines of ``metrics.jsonl``, for others to follow while it grows."""

    def __init__(self, out: Path) -> None:
        path = out / "metrics.jsonl"
        if path.exists():
            # A kill in mid-line leaves a torn end, which would swallow the next line.
            whole = path.read_bytes().rfind(b"\n") + 1
            os.truncate(path, whole)
        self.file: TextIO = path.open("a")

    def write(self, done: float, total: float, values: Mapping[str, Any]) -> None:
        """Append one line; ``done`` of ``total`` is the progress of the whole job."""
        self.file.write(json.dumps({"time": time.time(), "done": done, "total": total, **values}) + "\n")
        self.file.flush()


class StopSignal:
    """Whether SIGTERM or SIGINT has come, once or more; the job ends itself at a place of its choosing."""

    def __init__(self) -> None:
        self.received = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.received = True


def main(work: Callable[[Job], Facts]) -> None:
    """Read the job named on the command line, do ``work``, leave ``exit.json``; the status is 0 only for ``done``."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m {sys.modules['__main__'].__spec__.name} job.json")  # type: ignore[union-attr]
    _die_with_torchrun()
    path = Path(sys.argv[1])
    out = path.parent
    try:
        job = Job.read(path)
        out = job.out
        out.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(job.site.threads)
        facts = work(job)
    except Exception as error:
        reason, message = classify_error(error)
        if reason == "failed":
            traceback.print_exc()
        print(f"{reason}: {message}", file=sys.stderr, flush=True)
        write_exit(out, reason, message, {})
        sys.exit(1)
    if os.environ.get("RANK", "0") == "0":
        write_exit(out, "done", "", facts)


def _die_with_torchrun() -> None:
    """Let a rank be killed when torchrun is gone: torchrun puts each in a session of its own, out of its group's reach,
    and a rank left behind would write into the folder of the next try. Checkpoints are whole at any moment."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)


def classify_error(error: Exception) -> tuple[ExitReason, str]:
    """The reason and the sentence of a job's end."""
    text = str(error).strip().splitlines()
    first = text[0] if text else type(error).__name__
    if isinstance(error, JobError):
        return error.reason, str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "no_space", f"no space left on the device while writing {error.filename or 'into the output folder'}"
    if is_out_of_memory(error):
        return "out_of_memory", f"a batch did not fit into memory (set REPRO_MICRO_BATCH_TOKENS, or lower it): {first}"
    if isinstance(error, ValueError):
        return "bad_configuration", first
    return "failed", f"{type(error).__name__}: {first}"


def is_out_of_memory(error: Exception) -> bool:
    """Whether a GPU's memory or the machine's was too small; the CPU allocator has no error class of its own."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def write_exit(out: Path, reason: ExitReason, message: str, facts: Facts) -> None:
    """Write ``exit.json``. Of several ranks those that know the reason have the word, not those they took along, and
    the leading one before others."""
    path = out / "exit.json"
    if path.exists() and (reason == "failed" or os.environ.get("RANK", "0") != "0"):
        return
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps({"reason": reason, "message": message, "facts": facts}))
    beside.replace(path)
