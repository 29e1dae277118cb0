"""Run rows of the paper's Tables 2 and 3 as separate runs and compare them with the paper's figures.

Rows share stages (text, vocabulary, shards, a training): the first row that needs one makes it. A row that fails does
not stop the others. ``flows.runs.paper_rows`` defines the rows.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flows.runner import records
from flows.runner.outcome import Outcome, StageFailed, cached_outcome, stage_folder
from flows.runner.request import ResolvedRun, RunPlan, RunRequest, make_plan
from flows.runs.overrides import without_replaced
from flows.runs.paper_rows import GROUPS, effective_scale, paper_row_of, parse_rows, row_run_name
from infra.errors import BadConfiguration, Fault, describe
from infra.processes.threads import run_in_threads
from tasks.evaluation.collapse import LayerCurves, layer_curves
from tasks.evaluation.html import layers_picture
from tasks.evaluation.paper_figures import PEERS
from tasks.evaluation.paper_page import as_json, markdown, page
from tasks.evaluation.paper_row import PaperComparison, compare_to_paper


@dataclass(frozen=True)
class PaperRequest:
    """Which rows (``base,A1`` or ``all``) on which corpus; with ``scale`` 0 the corpus decides the widths."""

    rows: str = "all"
    corpus: str = "wmt14-ende"
    scale: int = 0
    at_once: int = 1
    overrides: tuple[str, ...] = ()
    site: str = "local"

    def resolve(self) -> "ResolvedPaper":
        """Resolve the run of each row; raises BadConfiguration for an unknown row or settings that do not fit."""
        if self.at_once < 1:
            raise BadConfiguration(f"--at-once is {self.at_once}, allowed is a whole number of at least 1")
        scale = effective_scale(self.scale, self.corpus)
        requests = {
            row: RunRequest(row_run_name(row, self.corpus, scale), overrides=self.overrides, site=self.site)
            for row in parse_rows(self.rows, self.corpus)
        }
        return ResolvedPaper(self, {row: request.resolve() for row, request in requests.items()})

    @property
    def heading(self) -> str:
        """The corpus and the widths as text: ``demo, widths divided by 8``."""
        scale = effective_scale(self.scale, self.corpus)
        widths = f"widths divided by {scale}" if scale > 1 else "the paper's widths"
        return f"{self.corpus}, {widths}"

    @property
    def title(self) -> str:
        """The heading and the settings."""
        return ", ".join([self.heading, *without_replaced(self.overrides)])

    @property
    def record_name(self) -> str:
        """The name of its records: the folder of the pages of all rows on this corpus at this scale."""
        return f"paper-{self.corpus}-scale{effective_scale(self.scale, self.corpus)}"

    @property
    def page_name(self) -> str:
        """The name of the folder of its page there: the rows, and a digest of the settings if it has some."""
        settings = sorted(without_replaced(self.overrides))
        digest = [hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:6]] if settings else []
        return "-".join([*(word.strip() for word in self.rows.split(",")), *digest])

    def page(self, root: Path) -> Path:
        """The path of its page below ``root``."""
        return root / records.record_folder(self.record_name) / self.page_name / "paper.html"


@dataclass(frozen=True)
class ResolvedPaper:
    """A request and the resolved run of each row."""

    request: PaperRequest
    rows: Mapping[str, ResolvedRun]


@dataclass(frozen=True)
class PaperResults:
    """The outcome of each row."""

    resolved: ResolvedPaper
    outcomes: Mapping[str, Outcome]

    @property
    def request(self) -> PaperRequest:
        return self.resolved.request

    @property
    def failed(self) -> dict[str, str]:
        """The failure of each row that has one."""
        return {row: outcome.failure for row, outcome in self.outcomes.items() if outcome.failure}

    def comparisons(self) -> list[PaperComparison]:
        return [compare_row(self.resolved.rows[row], outcome) for row, outcome in self.outcomes.items()]

    def as_json(self) -> dict[str, Any]:
        names = ("stage", "item", "key", "state")
        rows = [
            {
                **as_json(line),
                "run": outcome.run,
                "model_version": outcome.model_version,
                "stages": [{name: getattr(row, name) for name in names} for row in outcome.rows],
            }
            for line, outcome in zip(self.comparisons(), self.outcomes.values(), strict=True)
        ]
        request = {**asdict(self.request), "scale": effective_scale(self.request.scale, self.request.corpus)}
        return {**request, "title": self.request.title, "table": rows, "peers": [asdict(peer) for peer in PEERS]}


class RowsFailed(Fault):
    """Some rows failed; ``paper`` has the outcomes of all rows."""

    def __init__(self, paper: PaperResults) -> None:
        failures = "; ".join(f"{row}: {failure}" for row, failure in paper.failed.items())
        super().__init__(f"{len(paper.failed)} of {len(paper.outcomes)} rows failed: {failures}")
        self.paper = paper


def write_pages(paper: PaperResults, root: Path) -> Path:
    """Write the page below ``root``, as HTML, as Markdown and as JSON; returns the first.

    Pages of other rows, and of the same rows with other settings, stay.
    """
    heading = paper.request.heading
    lines = paper.comparisons()
    settings = without_replaced(paper.request.overrides)
    curves = {
        row: row_curves(paper.resolved.rows[row], paper.outcomes[row])
        for row in GROUPS["norms"]
        if row in paper.outcomes
    }
    texts = {
        ".md": markdown(heading, lines, settings),
        ".html": page(heading, lines, layers_picture(curves), settings),
    }
    path = paper.request.page(root)
    records.write_paper(path, texts, paper.as_json())
    return path


def row_curves(resolved: ResolvedRun, outcome: Outcome) -> LayerCurves:
    """The signs of collapse of a row's training, by layer; empty if it did not get so far."""
    trained = [r for r in outcome.rows if r.stage == "train" and r.path]
    return layer_curves(stage_folder(trained[0], resolved.site) / "metrics.jsonl") if trained else {}


def compare_row(resolved: ResolvedRun, outcome: Outcome) -> PaperComparison:
    """Compare a row with the paper, as far as its run got."""
    (row,) = paper_row_of(resolved.run)
    training = next((r.facts for r in outcome.rows if r.stage == "train" and r.path), {})
    scored = [r for r in outcome.rows if r.stage == "score" and r.item == row.set_name and r.path]
    card = json.loads((stage_folder(scored[0], resolved.site) / "card.json").read_text()) if scored else {}
    return compare_to_paper(row, training, card, outcome.failure)


def cached_paper(resolved: ResolvedPaper) -> PaperResults | None:
    """The outcomes if every stage of every row is a hit; None at the first row with work, without planning the rest."""
    found: dict[str, Outcome] = {}
    for row, each in resolved.rows.items():
        outcome = cached_outcome(make_plan(each).outcome)
        if outcome is None:
            return None
        found[row] = outcome
    return PaperResults(resolved, found)


def run_rows(
    resolved: ResolvedPaper, run_planned: Callable[[RunPlan], Outcome], say: Callable[[str], None]
) -> PaperResults:
    """Run each row that has work, at most ``at_once`` at a time; a failure affects only its row."""

    def run_row(row: str) -> Outcome:
        each = resolved.rows[row]
        try:
            planned = make_plan(each)
            cached = cached_outcome(planned.outcome)
            say(f"row {row}: {'every stage is cached' if cached else each.request.run}")
            return cached or run_planned(planned)
        except StageFailed as failed:
            outcome = failed.outcome
        except (Fault, OSError) as error:  # an unreachable server, a missing folder: the next row may succeed
            outcome = Outcome(each.request.run, failure=describe(error))
        say(f"row {row}: {outcome.failure}")
        return outcome

    calls = [partial(run_row, row) for row in resolved.rows]
    outcomes = run_in_threads(calls, resolved.request.at_once, "row")
    return PaperResults(resolved, dict(zip(resolved.rows, outcomes, strict=True)))
