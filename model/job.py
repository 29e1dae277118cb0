"""The code that all jobs of this package share: ``job.json``, rows of progress, and ``exit.json``.

    def work(job: Job) -> Facts: ...
    if __name__ == "__main__":
        run_job(work)

A job reads its input folders and writes into ``job.out``. If it fails, ``exit.json`` holds one of the reasons of
``model.errors`` and a message for the user.
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

from .config.keying import require, require_choices
from .errors import ExitReason, JobError

Facts = dict[str, Any]
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class JobSettings:
    """Where and how a job computes.

    Another number of ranks (without strict numerics), another micro-batch size, compiled code or another kind of device
    changes rounding and dropout masks. ``packed_attention`` changes rounding. No other setting may change the results.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a CUDA device if there is one, otherwise the CPU."""
    threads: int = 1
    compile: Literal["auto", "always", "never", "update"] = "auto"
    """Whether torch.compile compiles the layers; auto: on GPUs; update: compile the whole update of a training and
    replay it as one CUDA graph (``model.experimental.whole_step``)."""
    packed_attention: Literal["torch", "own"] = "torch"
    """The attention over packed sentences in a training; own: ``model.experimental.packed_attention``."""
    micro_batch_tokens: int = 0
    """Maximum tokens per side that a rank computes at once; 0: the rank's whole share of an update."""
    log_seconds: float = 2.0
    resume_seconds: float = 60.0
    """Seconds between checkpoints that only resuming needs; more if saving is slow. 0: save after every update."""
    rank_timeout_seconds: float = 120.0
    """Maximum seconds that ranks wait for a rank that is slow, stuck or dead."""

    def __post_init__(self) -> None:
        require_choices(self, "site")
        require(self.threads >= 1, "site.threads", self.threads, "a whole number of at least 1")
        require(self.rank_timeout_seconds > 0, "site.rank_timeout_seconds", self.rank_timeout_seconds, "above 0")

    def torch_device(self) -> torch.device:
        """Return the device of this rank (LOCAL_RANK under torchrun). Raises JobError for ``cuda`` without a GPU."""
        if self.device == "cpu" or (self.device == "auto" and not torch.cuda.is_available()):
            return torch.device("cpu")
        if not torch.cuda.is_available():
            raise JobError("bad_configuration", "site.device is 'cuda', but this machine shows no CUDA device")
        number = int(os.environ.get("LOCAL_RANK", "0"))
        if number >= (count := torch.cuda.device_count()):
            allowed = f"at most {count}: each needs a GPU of its own"
            raise JobError("bad_configuration", f"rank {number} finds no GPU on this node; ranks here are {allowed}")
        return torch.device("cuda", number)


@dataclass(frozen=True)
class Job:
    """The contents of a ``job.json``: configurations as plain JSON, input folders by name, the output folder."""

    config: Mapping[str, Any]
    inputs: Mapping[str, Path]
    out: Path
    site: JobSettings = field(default_factory=JobSettings)

    @staticmethod
    def read(path: Path) -> "Job":
        """Read a ``job.json``; ignore settings that only other kinds of jobs have."""
        try:
            job = json.loads(path.read_text())
            known = {n: value for n, value in job.get("site", {}).items() if n in JobSettings.__dataclass_fields__}
            inputs = {name: Path(folder) for name, folder in job["inputs"].items()}
            return Job(job["config"], inputs, Path(job["out"]), JobSettings(**known))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise JobError(
                "bad_configuration", f"{path} is not a valid job file: {type(error).__name__} {error}"
            ) from error


class Metrics:
    """Writes progress as rows of ``metrics.jsonl``; other programs read the file while it grows."""

    def __init__(self, out: Path) -> None:
        path = out / "metrics.jsonl"
        if path.exists():
            # A kill can leave an incomplete last line, and the next row would be appended to it.
            whole = path.read_bytes().rfind(b"\n") + 1
            os.truncate(path, whole)
        self.file: TextIO = path.open("a")

    def write(self, done: float, total: float, values: Mapping[str, Any]) -> None:
        """Append one line; ``done`` of ``total`` is the progress of the whole job."""
        self.file.write(json.dumps({"time": time.time(), "done": done, "total": total, **values}) + "\n")
        self.file.flush()


class StopSignal:
    """Records SIGTERM and SIGINT in ``received``; the job ends at its next safe point."""

    def __init__(self) -> None:
        self.received = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.received = True


def run_job(work: Callable[[Job], Facts]) -> None:
    """Do the job that the command line names. ``exit.json`` gets its facts, or its error, which ends the process."""
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
        if os.environ.get("RANK", "0") == "0":
            write_exit(out, "done", "", facts)
    except Exception as error:
        reason, message = classify_error(error)
        if reason == "failed":
            traceback.print_exc()
        print(f"{reason}: {message}", file=sys.stderr, flush=True)
        write_exit(out, reason, message, {})
        sys.exit(1)


def _die_with_torchrun() -> None:
    """Make the kernel kill this rank when torchrun dies.

    torchrun starts each rank in its own session, so signals to torchrun's process group do not reach it. An orphaned
    rank would write into the folder of the next attempt. A kill is safe, because a checkpoint is renamed when complete.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)


def seconds_since_launch() -> float:
    """Return the seconds since torchrun was started, including the imports; 0 without torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return 0.0
    ticks = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19]
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")


def classify_error(error: Exception) -> tuple[ExitReason, str]:
    """Return the reason and the message for ``exit.json``."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, JobError):
        return error.reason, str(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "no_space", f"no space left for {error.filename or 'the output folder'}: {error.strerror}"
    if is_out_of_memory(error):
        return "out_of_memory", f"a batch did not fit into memory; use a machine with more memory: {first}"
    if isinstance(error, ValueError):
        return "bad_configuration", first
    return "failed", f"{type(error).__name__}: {first}"


def is_out_of_memory(error: Exception) -> bool:
    """Whether GPU or main memory ran out; outside its own GPU allocator torch raises a plain RuntimeError."""
    says = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in str(error) for words in says)


def write_exit(out: Path, reason: ExitReason, message: str, facts: Facts) -> None:
    """Write ``exit.json``, unless it exists and the reason is ``failed`` or this is not the main rank.

    So a rank that fails because of another rank's error does not overwrite that error."""
    path = out / "exit.json"
    if path.exists() and (reason == "failed" or os.environ.get("RANK", "0") != "0"):
        return
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps({"reason": reason, "message": message, "facts": facts}))
    partial.replace(path)
