"""What the stages of a run's newest start say of themselves: the measurements of a job, its log, and why it failed.

A stage at work writes into its unfinished folder, a failed one leaves its log beside it, a finished one holds it; so
one of these folders has the files, whichever launcher or worker runs the job. Of a stage in a bucket the finished
artifact is fetched.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from flows.runner.artifact_names import ArtifactName
from flows.runner.recorded_runs import RecordedRun, RecordedStage, read_runs
from flows.runner.records import receive_records
from infra.errors import BadConfiguration
from infra.store.store import Store
from tasks.engine.progress import describe_metrics

FILES = ("metrics.jsonl", "job.log")


@dataclass
class StageLog:
    """One stage, and how much of its files was read."""

    store: Store
    row: RecordedStage
    read: dict[str, int] = field(default_factory=dict)

    @property
    def folder(self) -> Path | None:
        """Where its files are now; None where there are none."""
        unfinished = sorted((self.store.root / self.row.stage).glob(f"{self.row.key}.partial-*"))
        finished = self.store.folder(self.row.stage, self.row.key)
        failed = self.store.failed_folder(self.row.stage, self.row.key)
        chosen = [finished] if self.row.has_artifact else [*unfinished, failed, finished]
        found = next((each for each in chosen if each.is_dir()), None)
        if found is None and self.row.has_artifact and (manifest := self.store.find(self.row.stage, self.row.key)):
            return self.store.artifact(manifest).path()
        return found

    @property
    def is_at_work(self) -> bool:
        """Whether a process of this machine makes it now."""
        return not self.row.has_artifact and self.store.is_locked(self.row.stage, self.row.key)

    def new_lines(self) -> Iterator[str]:
        """The lines that were written since the last call."""
        folder = self.folder
        for name in FILES if folder else ():
            assert folder
            file = folder / name
            if not file.is_file():
                continue
            with file.open("rb") as opened:
                opened.seek(self.read.get(name, 0))
                whole, end, _ = opened.read().rpartition(b"\n")
            self.read[name] = self.read.get(name, 0) + len(whole + end)
            for line in whole.decode(errors="replace").splitlines():
                yield _in_words(line) if name.endswith(".jsonl") else line


def newest_start(store: Store, run: str, overrides: Sequence[str] = ()) -> RecordedRun:
    """The newest start of a run, or of the run with these overrides. Raises BadConfiguration where there is none."""
    receive_records(store, run)
    starts = [each for each in read_runs(store.root, run) if not overrides or each.overrides == tuple(overrides)]
    if not starts:
        settings = "".join(f" --set {each}" for each in overrides)
        raise BadConfiguration(f"no start of {run}{settings} is on record in {store.root}; `repro history` lists all")
    return starts[0]


def stage_logs(store: Store, start: RecordedRun, wanted: ArtifactName) -> list[StageLog]:
    """The stages that are wanted; without one: those at work, else those that failed, else the last with a log."""
    logs = [StageLog(store, row) for row in start.stages]
    if wanted.stage:
        return [each for each in logs if wanted.covers(ArtifactName(start.run, each.row.stage, each.row.item))]
    at_work = [each for each in logs if each.is_at_work]
    failed = [each for each in logs if each.row.state == "failed"]
    with_log = [each for each in logs if each.folder and (each.folder / FILES[0]).is_file()]
    return at_work or failed or with_log[-1:]


def _in_words(line: str) -> str:
    """A row of ``metrics.jsonl`` as ``09:31:07  update 120/700  loss 3.21 · 5,210 tokens/s``."""
    try:
        row = json.loads(line)
        moment = f"{datetime.fromtimestamp(row['time'], UTC).astimezone():%H:%M:%S}  " if "time" in row else ""
        done = f"{row['done']:,.0f}/{row['total']:,.0f}  " if "total" in row else ""
        return f"{moment}{done}{describe_metrics([row])}".rstrip()
    except (ValueError, TypeError, KeyError):
        return line
