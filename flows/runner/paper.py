"""Run rows of the paper's Tables 2 and 3 as separate runs and compare them with the paper's figures.

Rows share stages (text, vocabulary, shards, a training): the first row that needs one makes it. A row that fails does
not stop the others. ``flows.runs.paper_rows`` defines the rows.
"""

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from flows.runner import records
from flows.runner.group import Group, GroupResults, RunOne, Say, digest, run_members
from flows.runner.outcome import Outcome, stage_folder
from flows.runner.request import ResolvedRun, RunRequest
from flows.runs.completion import OverridesOption
from flows.runs.overrides import without_replaced
from flows.runs.paper_rows import GROUPS, effective_scale, paper_row_of, parse_rows, row_run_name
from infra.errors import BadConfiguration
from infra.site import Site
from tasks.evaluation.html import layers_picture
from tasks.evaluation.paper_figures import PEERS
from tasks.evaluation.paper_page import as_json, render
from tasks.evaluation.paper_row import PaperComparison, compare_to_paper
from tasks.evaluation.training_log import LayerCurves, layer_curves


@Parameter(name="*")
@dataclass(frozen=True)
class PaperRequest:
    """Reproduce rows of the paper's Tables 2 and 3 as separate runs and compare them with the paper's figures.

    Args:
        rows: Rows of Table 3 (base, A1, …) and Table 2 (table2-base, …), separated by commas; or all of these; or norms
            (pre-LN and post-LN), or searches (own layers and torch.nn.Transformer, greedy and beam search).
        corpus: wmt14-ende, the paper's corpus, or another run, to use its text, for example demo.
        scale: Divisor of the models' widths; 0 means 1 for the paper's corpus, else 8.
        at_once: Rows that run at the same time.
        overrides: Fields of every row's run to change, for example training.updates=200; repeatable.
        site: Where to compute: local or gpu. With gpu, a worker without one fails.
    """

    rows: str = "all"
    corpus: str = "wmt14-ende"
    scale: int = 0
    at_once: int = 1
    overrides: OverridesOption = ()
    site: str = "local"

    def resolve(self) -> "ResolvedPaper":
        """Resolve the run of each row; raises BadConfiguration for an unknown row or settings that do not fit."""
        if self.at_once < 1:
            raise BadConfiguration(f"--at-once is {self.at_once}, allowed is a whole number of at least 1")
        if named := [each for each in self.overrides if each.partition("=")[0].strip() == "name"]:
            raise BadConfiguration(f"--set {named[0]}: a row is found by its name; allowed is every other field")
        scale = effective_scale(self.scale, self.corpus)
        requests = {
            row: RunRequest(row_run_name(row, self.corpus, scale), overrides=self.overrides, site=self.site)
            for row in parse_rows(self.rows, self.corpus)
        }
        group = Group(
            name="-".join([self.record_name, *self._settings]),
            title=self.title,
            noun="row",
            experiment=self.record_name,
            site=Site.named(self.site),
            overrides=self.overrides,
            params={"corpus": self.corpus, "scale": scale},
            members={row: request.resolve() for row, request in requests.items()},
        )
        return ResolvedPaper(self, group)

    @property
    def heading(self) -> str:
        """The corpus and the widths as text: ``demo, widths divided by 8``."""
        scale = effective_scale(self.scale, self.corpus)
        widths = f"widths divided by {scale}" if scale > 1 else "the paper's widths"
        return f"{self.corpus}, {widths}"

    @property
    def title(self) -> str:
        """The heading, with the settings."""
        return ", ".join([self.heading, *without_replaced(self.overrides)])

    @property
    def record_name(self) -> str:
        """The name of its records, and of the folder with the pages of all rows on this corpus at this scale."""
        return f"paper-{self.corpus}-scale{effective_scale(self.scale, self.corpus)}"

    @property
    def _settings(self) -> list[str]:
        """A digest of any settings, for names."""
        settings = sorted(without_replaced(self.overrides))
        return [digest(settings)] if settings else []

    def page(self, root: Path) -> Path:
        """The path of its page below ``root``, in a folder named by the rows and a digest of any settings."""
        folder = "-".join([*(word.strip() for word in self.rows.split(",")), *self._settings])
        return root / records.record_folder(self.record_name) / folder / "paper.html"


@dataclass(frozen=True)
class ResolvedPaper:
    """A request and the group of the rows' runs. A row is planned once, when its plan is first needed."""

    request: PaperRequest
    group: Group

    def run(self, run_one: RunOne, say: Say) -> "PaperResults":
        """Run each row that has work, at most ``at_once`` at a time, and write the page."""
        results_of = partial(PaperResults, self.group, request=self.request)
        results = run_members(self.group, self.request.at_once, run_one, say, results_of)
        write_pages(results)
        return results


@dataclass(frozen=True, kw_only=True)
class PaperResults(GroupResults):
    """The outcome of each row."""

    request: PaperRequest

    @property
    def markdown(self) -> str:
        return render(
            "paper_page.md", self.request.heading, self.comparisons(), without_replaced(self.request.overrides)
        )

    def comparisons(self) -> list[PaperComparison]:
        return [compare_row(self.group.members[row], outcome) for row, outcome in self.outcomes.items()]

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


def write_pages(paper: PaperResults) -> None:
    """Write the page as HTML, Markdown and JSON; pages of other rows, or of these with other settings, stay."""
    request = paper.request
    curves = {
        row: row_curves(paper.group.members[row], paper.outcomes[row])
        for row in GROUPS["norms"]
        if row in paper.outcomes
    }
    settings = without_replaced(request.overrides)
    whole = render("paper_page.html", request.heading, paper.comparisons(), settings, layers_picture(curves))
    pages = {".md": paper.markdown, ".html": whole}
    records.write_paper(request.page(paper.group.site.root), pages, paper.as_json())


def row_curves(resolved: ResolvedRun, outcome: Outcome) -> LayerCurves:
    """Read the signs of collapse of a row's training, by layer; empty before the training finished."""
    training = outcome.training
    if not training or not training.path:
        return {}
    return layer_curves(stage_folder(training, resolved.site) / "metrics.jsonl")


def compare_row(resolved: ResolvedRun, outcome: Outcome) -> PaperComparison:
    """Compare a row with the paper, using the stages that its run finished."""
    (row,) = paper_row_of(resolved.run)
    training = outcome.training.facts if outcome.training else {}
    scored = [r for r in outcome.rows if r.stage == "score" and r.item == row.set_name and r.path]
    card = json.loads((stage_folder(scored[0], resolved.site) / "card.json").read_bytes()) if scored else {}
    return compare_to_paper(row, training, card, outcome.failure)
