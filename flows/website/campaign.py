"""The runs on record: every start, the newest first, on pages of a limited size; and their sums."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.runner.recorded_runs import RecordedRun

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
    return Totals(
        Counter(run.outcome for run in runs),
        sum(stage.was_made for stage in stages),
        sum(stage.was_cached for stage in stages),
        sum(stage.state == "failed" for stage in stages),
        sum(run.seconds for run in runs) / 3600,
    )


def anchor(run: RecordedRun) -> str:
    """The id of a run on its page: its start, in UTC."""
    return f"r{run.path.stem}"
