"""Reads the logs of the stages of a run's newest start: measurements, job log, and why a stage failed.

A running stage writes into its unfinished folder, a failed stage leaves its log beside it, and a finished artifact
contains its log. So one of these folders has the files, with every launcher or worker. A finished artifact in a bucket
is downloaded.
"""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import merge
from operator import itemgetter
from pathlib import Path

from flows.runner.artifact_names import ArtifactName
from flows.runner.recorded_runs import (
    WAS_INTERRUPTED,
    RecordedRun,
    RecordedStage,
    is_name,
    read_headers,
    run_names,
    with_overrides,
    with_stages,
)
from flows.runner.records import FINISHED, KILLED, RUNNING, receive_records
from flows.runs import RUNS
from flows.runs.overrides import as_options
from flows.runs.unknown_names import did_you_mean
from infra.errors import BadConfiguration
from infra.processes.locks import lock_holder
from infra.store.store import Store
from infra.tracking.metrics_tail import MetricsTail
from tasks.engine.jobs import METRICS
from tasks.engine.progress import describe_metrics

TORCHRUN = re.compile(
    r"^[A-Z]\d{4} .*torch/distributed/elastic/.*\n"
    r"|^Traceback .*\n(?: .*\n)+torch\.distributed\.elastic\..*\n(?:={20,}\n(?:.*\n)*?={20,}\n)?"
    r"(?:\nDuring handling of the above exception, another exception occurred:\n\n)?",
    re.MULTILINE,
)
"""Lines that torchrun adds when its processes end: its own traceback, not why they failed."""

RESUMED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?=  )")
"""The time at the beginning of a line of ``tasks.stages.train``."""


class StageLog:
    """One stage, with the position up to which its files were read."""

    def __init__(self, store: Store, row: RecordedStage, start: RecordedRun) -> None:
        self.store = store
        self.row = row
        self.start = start
        self._tails = [MetricsTail(Path(name)) for name in (METRICS, "job.log")]

    @property
    def folder(self) -> Path | None:
        """The present folder of its files; None if there are none, or another start is writing them."""
        name = self.row.stage, self.row.key
        if not self.row.has_artifact:
            if self._holder and not self.is_at_work:
                return None
            places = [*self.store.unfinished_folders(*name), self.store.failed_folder(*name), self.store.folder(*name)]
            return next(filter(Path.is_dir, places), None)
        if (folder := self.store.folder(*name)).is_dir():
            return folder
        manifest = self.store.find(*name)
        return self.store.artifact(manifest).path() if manifest else None

    @property
    def is_at_work(self) -> bool:
        """Whether a process of this machine is making it for this start."""
        return bool(self._holder) and (self.start.outcome == RUNNING or self._is_own)

    @property
    def state(self) -> str:
        """Its state in this start: ``is at work``, ``was interrupted``, ``is completed``."""
        row = self.row
        holder = self._holder
        if holder and self.start.outcome == RUNNING:
            return "is at work" if self._is_own else f"is at work in {holder}"
        words = {"failed": "failed", "miss": "needs to run", "waits": "waits for its inputs"}
        ended = words.get(row.state, f"is {row.state}")
        if self.start.outcome == KILLED and not row.has_artifact:
            ended = WAS_INTERRUPTED if holder or self.folder or row.failures else "was not reached"
        doing = "its job is about to end" if self._is_own else f"{holder} makes the same artifact now"
        return f"{ended}{f'; {doing}' if holder else ''}"

    @property
    def _holder(self) -> str:
        return "" if self.row.has_artifact else lock_holder(self.store.lock_file(self.row.stage, self.row.key))

    @property
    def _is_own(self) -> bool:
        """Whether the process of this start is making it."""
        return self._holder.split()[1:2] == [self.start.pid]

    def new_lines(self, every: bool) -> Iterator[str]:
        """Yield the lines written since the last call; with ``every`` also those of TORCHRUN.

        Lines of a job's log stand among the measurements where the next job resumed; the last ones where the log ended.
        """
        if (folder := self.folder) is None:
            return
        for tail in self._tails:
            tail.path = folder / tail.path.name  # the folder is renamed when the stage ends
        rows, log = (tail.read_lines().decode(errors="replace") for tail in self._tails)
        measured = [row for line in rows.splitlines() if (row := _in_words(line))[1]]
        when = self._tails[1].path.stat().st_mtime if log else 0.0
        said = []
        for line in reversed((log if every else TORCHRUN.sub("", log)).splitlines()):
            if moment := RESUMED.match(line):
                when = datetime.fromisoformat(moment[0]).timestamp()
            said.append((when, line[line.find(" ") + 1 :] if moment else line))
        yield from (words for _, words in merge(measured, reversed(said), key=itemgetter(0)))


def newest_start(store: Store, name: ArtifactName, overrides: Sequence[str] = (), key: str = "") -> RecordedRun:
    """Find the newest running start of a run, or of the run with these overrides, else the newest ended one.

    A start without the named stage, or a finished one without any log, is passed over if another has it. With ``key``,
    the first finished start with an artifact of that key, else the first start with one. Raises BadConfiguration if
    there is no start.
    """
    run = name.run
    receive_records(store, run)
    starts = with_overrides(read_headers(store.root, run), overrides)
    starts = starts[::-1] if key else starts
    readable = None
    for start in sorted(starts, key=lambda each: each.outcome != (FINISHED if key else RUNNING)):
        whole = with_stages(start)
        if whole and key and not any(row.key == key for row in whole.stages):
            continue
        if whole and ((not name.stage and whole.outcome != FINISHED) or stage_logs(store, whole, name)):
            return whole
        readable = readable or whole
    if readable:
        return readable
    known = run_names(store.root)
    if run not in known and not is_name(name.asked, run):
        hint = did_you_mean(run, {*known, *RUNS})
        raise BadConfiguration(f"unknown run {run!r}{hint or ';'} `repro history` lists what began")
    way = "`repro plan` says whether this run is refused, and why; `repro history` lists what began"
    raise BadConfiguration(f"no stage of {run}{as_options(overrides)} began in {store.root}: {way}")


def stage_logs(store: Store, start: RecordedRun, wanted: ArtifactName, *, finished: bool = True) -> list[StageLog]:
    """Choose the wanted stages; by default running ones, else failed ones, else (``finished``) the training or last."""
    logs = [StageLog(store, row, start) for row in start.stages]
    if wanted.stage:
        return [each for each in logs if wanted.covers(ArtifactName(start.run, each.row.stage, each.row.item))]
    at_work = [each for each in logs if each.is_at_work]
    failed = [each for each in logs if each.row.state == "failed"]
    with_log = [each for each in logs if each.folder and (each.folder / METRICS).is_file()]
    if at_work or failed or not finished:
        return at_work or failed
    return sorted(with_log, key=lambda each: each.row.stage == "train")[-1:]


def _in_words(line: str) -> tuple[float, str]:
    """Format a row of ``metrics.jsonl``: time, and ``09:31:07  update 120/700  loss 3.21 · 5,210 tokens/s``."""
    try:
        row = json.loads(line)
        when = float(row.get("time", 0.0))
        moment = f"{datetime.fromtimestamp(when):%H:%M:%S}  " if when else ""
        if "facts" in row:  # a job that its clock ended did not do all of the total
            return when, ""
        done = f"{row['done']:,.0f}/{row['total']:,.0f}  " if "total" in row else ""
        return when, f"{moment}{done}{describe_metrics([row])}".rstrip()
    except (ValueError, TypeError, KeyError, AttributeError):
        return 0.0, line
