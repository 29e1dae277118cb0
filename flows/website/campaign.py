"""The runs on record: every start, the newest first, on pages of a limited size; their sums, limits and sweeps."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.inspection.run_history import RecordedRun
from infra.store.file_names import file_name

RUNS_ON_A_PAGE = 150
"""A run takes some 3 kB: so a page stays below half a megabyte."""


@dataclass(frozen=True)
class CampaignPage:
    """Some runs of the campaign, and where the page is."""

    name: str
    runs: Sequence[RecordedRun]


@dataclass(frozen=True)
class Totals:
    """Sums over all runs of the campaign."""

    outcomes: Mapping[str, int]
    made: int
    cached: int
    failed: int
    hours: float
    """Of the stages that were made or tried; stages at the same time count each."""
    gpu_kwh: float | None
    """None where no GPU was metered."""


def campaign_pages(runs: Sequence[RecordedRun]) -> list[CampaignPage]:
    """The pages; the first is ``campaign.html``, also where there is no run."""
    starts = range(0, max(1, len(runs)), RUNS_ON_A_PAGE)
    return [
        CampaignPage(f"campaign{f'-{number}' * (number > 1)}.html", runs[start : start + RUNS_ON_A_PAGE])
        for number, start in enumerate(starts, start=1)
    ]


def totals(runs: Sequence[RecordedRun]) -> Totals:
    """Sums for the head of the pages."""
    stages = [stage for run in runs for stage in run.stages]
    metered = [run.gpu_kwh for run in runs if run.gpu_kwh is not None]
    return Totals(
        Counter(run.outcome for run in runs),
        sum(stage.was_made for stage in stages),
        sum(stage.was_cached for stage in stages),
        sum(stage.state == "failed" for stage in stages),
        sum(run.seconds for run in runs) / 3600,
        sum(metered) if metered else None,
    )


def anchor(run: RecordedRun) -> str:
    """The id of a run on its page: its start, in UTC."""
    return f"r{run.path.stem}"


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
