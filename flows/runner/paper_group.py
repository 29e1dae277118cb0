"""Groups the rows of the paper in MLflow: one experiment, with a run above those of the rows."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from flows.runner.outcome import Outcome
from flows.runner.paper import PaperResults, ResolvedPaper
from flows.runs.overrides import run_title
from flows.runs.paper_rows import effective_scale
from infra.site import Site
from infra.tracking.run_description import table
from infra.tracking.tracker import Tracker
from model.metric_names import BLEU


def run_group(resolved: ResolvedPaper, run_all: Callable[[ResolvedPaper], PaperResults]) -> PaperResults:
    """Begin the run above the rows, or go on with that of an earlier call, run the rows, and end it with their scores.

    ``run_all`` gets the rows with their place in MLflow.
    """
    asked = resolved.request
    site = Site.named(resolved.request.site)
    name = asked.record_name
    scale = effective_scale(asked.scale, asked.corpus)
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts", token=name)
    tags = {"overrides": " ".join(asked.overrides)}
    params = {"corpus": asked.corpus, "scale": scale}
    parent = tracker.start(name, asked.title, tags, params)
    rows = {
        row: replace(
            each, title=run_title(f"row {row}", each.request.overrides), parent=parent, group=name, experiment=name
        )
        for row, each in resolved.rows.items()
    }
    status = "FAILED"
    facts: dict[str, float] = {}
    try:
        found = run_all(replace(resolved, rows=rows))
        facts = _scores_by_row(found.outcomes)
        status = "FAILED" if found.failed else "FINISHED"
        return found
    except (KeyboardInterrupt, SystemExit):
        status = "KILLED"
        raise
    finally:
        if facts:
            lines = [[name.removesuffix(f".{BLEU}"), f"{bleu:.2f}"] for name, bleu in facts.items()]
            tracker.describe(table(["row and set", "BLEU"], lines))
        tracker.finish_stage(parent, status, facts)
        tracker.finish(status)


def _scores_by_row(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """BLEU by row and set, ``A1.newstest2013.bleu``, so that one chart shows the rows."""
    return {
        f"{row}.{name}.{BLEU}": card[BLEU]
        for row, outcome in outcomes.items()
        for name, card in outcome.own_scores.items()
        if BLEU in card
    }
