"""The pages of sweeps: what each searched for, its trials with their scores, and the run on record of each trial."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.inspection.run_history import RecordedRun
from infra.store.file_names import file_name

MOST_TRIALS = 2000
"""A trial takes some 400 bytes: so a page stays below a megabyte."""


@dataclass(frozen=True)
class SweepPage:
    """A sweep as its ``sweep.json`` has it, and its picture."""

    found: Mapping[str, Any]
    picture: Path | None

    @property
    def name(self) -> str:
        return f"{self.found['name']}"

    @property
    def group(self) -> str:
        """As records of its trials name it."""
        return f"sweep {self.name}"

    @property
    def page(self) -> str:
        return f"sweeps/{file_name(self.name)}.html"

    @property
    def trials(self) -> Sequence[Mapping[str, Any]]:
        """The first trials; a table of more would make a page of megabytes."""
        return list(self.found["table"])[:MOST_TRIALS]

    def runs_of(self, trial: Mapping[str, Any], runs: Sequence[RecordedRun]) -> list[RecordedRun]:
        """The starts of a trial among the runs of its sweep."""
        return [run for run in runs if run.member == f"trial {trial['number']}"]


def read_sweeps(root: Path) -> Iterator[SweepPage]:
    """The sweeps of a root that have a readable list of trials; nothing where there was none."""
    for file in sorted(root.glob("sweeps/*/sweep.json")):
        try:
            found = json.loads(file.read_text())
            whole = [{"number", "value", "state", "settings", "failure"} <= row.keys() for row in found["table"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if all(whole) and {"name", "on", "spaces", "best", "command"} <= found.keys():
            picture = file.with_name("sweep.png")
            yield SweepPage(found, picture if picture.is_file() else None)
