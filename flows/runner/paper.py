"""Rows of the paper's Tables 2 and 3, carried out as runs and laid beside the paper's figures.

Each row is a run of its own: what rows have in common (text, vocabulary, shards, a training) is made by the first that
comes to it and found by the others; a row that fails stops no other. How a request is carried out is the caller's
business, what a row is ``flows.runs.paper_rows``'.
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.runner import records
from flows.runner.run import Outcome, RunRequest, StageFailed, cached_outcome, plan, stage_folder
from flows.runs.paper_rows import effective_scale, paper_row_of, parse_rows, row_run_name
from infra.errors import BadConfiguration, Fault
from infra.processes import signals
from tasks.evaluation.paper_figures import PEERS
from tasks.evaluation.paper_page import as_json, markdown, page
from tasks.evaluation.paper_row import PaperComparison, compare_to_paper

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class PaperRequest:
    """What somebody asked for, in words that travel; ``scale`` 0 leaves it to the corpus, ``rows`` may be ``all``."""

    rows: str = "all"
    corpus: str = "wmt14-ende"
    scale: int = 0
    at_once: int = 1
    overrides: tuple[str, ...] = ()
    site: str = "local"

    def requests(self) -> dict[str, RunRequest]:
        """The request for each row; raises BadConfiguration for an unknown word or settings that do not fit."""
        if self.at_once < 1:
            raise BadConfiguration(f"--at-once is {self.at_once}, allowed is a whole number of at least 1")
        scale = effective_scale(self.scale, self.corpus)
        found = {
            row: RunRequest(row_run_name(row, self.corpus, scale), overrides=self.overrides, site=self.site)
            for row in parse_rows(self.rows, self.corpus)
        }
        for request in found.values():
            request.resolve()
        return found

    @property
    def title(self) -> str:
        """Where it was done, in words: ``demo, widths divided by 8``."""
        scale = effective_scale(self.scale, self.corpus)
        words = [self.corpus, f"widths divided by {scale}" if scale > 1 else "the paper's widths"]
        return ", ".join([*words, *self.overrides])

    @property
    def record_name(self) -> str:
        """The name of its records."""
        return f"paper-{self.corpus}-scale{effective_scale(self.scale, self.corpus)}"


@dataclass(frozen=True)
class PaperResults:
    """What came of each row."""

    request: PaperRequest
    outcomes: Mapping[str, Outcome]

    @property
    def failed(self) -> dict[str, str]:
        """The failure of each row that has one."""
        return {row: outcome.failure for row, outcome in self.outcomes.items() if outcome.failure}

    def comparisons(self) -> list[PaperComparison]:
        requests = self.request.requests()
        return [compare_row(requests[row], outcome) for row, outcome in self.outcomes.items()]

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
        asked = {**asdict(self.request), "scale": effective_scale(self.request.scale, self.request.corpus)}
        return {**asked, "title": self.request.title, "table": rows, "peers": [asdict(peer) for peer in PEERS]}


class RowsFailed(Fault):
    """Some rows failed; ``paper`` says which, and what came of the others."""

    def __init__(self, paper: PaperResults) -> None:
        told = "; ".join(f"{row}: {failure}" for row, failure in paper.failed.items())
        super().__init__(f"{len(paper.failed)} of {len(paper.outcomes)} rows failed: {told}")
        self.paper = paper


def write_pages(paper: PaperResults, root: Path) -> Path:
    """Write ``paper.md``, ``paper.html`` and ``paper.json`` below ``root``; returns their folder."""
    title, lines = paper.request.title, paper.comparisons()
    texts = {"paper.md": markdown(title, lines), "paper.html": page(title, lines)}
    return records.write_paper(root, paper.request.record_name, texts, paper.as_json())


def compare_row(request: RunRequest, outcome: Outcome) -> PaperComparison:
    """The row beside the paper's, as far as the run came."""
    run, site, _ = request.resolve()
    (row,) = paper_row_of(run)
    training = next((r.facts for r in outcome.rows if r.stage == "train" and r.path), {})
    scored = [r for r in outcome.rows if r.stage == "score" and r.item == row.set_name and r.path]
    card = json.loads((stage_folder(scored[0], site) / "card.json").read_text()) if scored else {}
    return compare_to_paper(row, training, card, outcome.failure)


def cached_paper(asked: PaperRequest) -> PaperResults | None:
    """The rows as they stand where nothing of them is to be made; None where there is work."""
    found: dict[str, Outcome] = {}
    for row, request in asked.requests().items():
        outcome = cached_outcome(plan(request))
        if outcome is None:
            return None
        found[row] = outcome
    return PaperResults(asked, found)


def run_rows(
    asked: PaperRequest, run_request: Callable[[RunRequest], Outcome], say: Callable[[str], None]
) -> PaperResults:
    """Carry out each row that has work, at most ``at_once`` at a time; a failure is kept with its row."""

    def one(row: str, request: RunRequest) -> Outcome:
        signals.check()
        try:
            there = cached_outcome(plan(request))
            say(f"row {row}: {'all is there' if there else request.run}")
            return there or run_request(request)
        except StageFailed as failed:
            outcome = failed.outcome
        except Exception as error:  # a server away, a folder gone: the next row may be luckier
            reason = f"{error}" if isinstance(error, Fault) else f"{type(error).__name__}: {error}"
            outcome = Outcome(request.run, failure=reason)
        except BaseException:
            signals.stop_all_threads()
            raise
        say(f"row {row}: {outcome.failure}")
        return outcome

    requests = asked.requests()
    if asked.at_once == 1:
        return PaperResults(asked, {row: one(row, request) for row, request in requests.items()})
    with ThreadPoolExecutor(asked.at_once, thread_name_prefix="row") as pool:
        futures = {row: pool.submit(copy_context().run, one, row, request) for row, request in requests.items()}
        try:
            _wait_for_rows(set(futures.values()))
            return PaperResults(asked, {row: future.result() for row, future in futures.items()})
        except BaseException:
            for future in futures.values():
                future.cancel()
            signals.stop_all_threads()
            raise


def _wait_for_rows(futures: set[Future[Outcome]]) -> None:
    """Until all are done, or one of them or this thread is interrupted."""
    while futures:
        signals.check()
        done, futures = wait(futures, POLL_SECONDS, FIRST_EXCEPTION)
        for future in done:
            future.result()
