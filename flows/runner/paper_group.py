"""Groups the rows of the paper in MLflow: one experiment, with a run above those of the rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from flows.runner.outcome import Outcome
from flows.runner.paper import PaperResults, ResolvedPaper
from flows.runs.overrides import run_title
from flows.runs.paper_rows import effective_scale
from infra.site import Site
from infra.tracking.run_description import table
from infra.tracking.tracker import Tracker
from model.metric_names import BLEU


@dataclass
class PaperGroup:
    """Rows whose runs in MLflow are in one experiment, below one run."""

    resolved: ResolvedPaper
    results: list[PaperResults] = field(default_factory=list)
    """The results, once they are known."""


@contextmanager
def paper_group(resolved: ResolvedPaper) -> Iterator[PaperGroup]:
    """Begin the run above the rows, or go on with that of an earlier call, and end it with the rows' scores."""
    asked, site = resolved.request, Site.named(resolved.request.site)
    name, scale = asked.record_name, effective_scale(asked.scale, asked.corpus)
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts", token=name)
    tags, params = {"overrides": " ".join(asked.overrides)}, {"corpus": asked.corpus, "scale": scale}
    parent = tracker.start(name, asked.title, tags, params)
    rows = {
        row: replace(
            each, title=run_title(f"row {row}", each.request.overrides), parent=parent, group=name, experiment=name
        )
        for row, each in resolved.rows.items()
    }
    group, status = PaperGroup(replace(resolved, rows=rows)), "KILLED"
    try:
        yield group
        status = "FINISHED" if group.results and not group.results[0].failed else "FAILED"
    except Exception:
        status = "FAILED"
        raise
    finally:
        facts = _scores_by_row(group.results[0].outcomes) if group.results else {}
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
