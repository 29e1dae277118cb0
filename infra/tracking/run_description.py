"""Writes the description on a run's page: scores and stages. Also flattens nested facts to names."""

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LONGEST_KEY = 250
PAGES = {"train": ("Curves", "model-metrics"), "report": ("Report", "artifacts")}
"""Stages that the description links to first: the label, and the path below the page of the stage's run."""
SCORE_STAGE = "score"
"""The stage with the run's scores."""
MARKS = re.compile(r"([\\`*_\[\]<>#|])")
"""Matches Markdown's special characters."""


@dataclass
class StageRow:
    """A stage of the run: its state and the MLflow run that made it."""

    stage: str
    item: str
    key: str
    state: str
    run_id: str = ""
    experiment: str = ""
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.stage} {self.item}".strip()

    @property
    def page(self) -> str:
        """The address of its run's page, relative to MLflow's; "" without a run."""
        return f"#/experiments/{self.experiment}/runs/{self.run_id}" if self.run_id else ""

    @property
    def linked(self) -> str:
        """The label, linked to its page if there is one."""
        return f"[{self.label}]({self.page})" if self.page else self.label


def run_description(lines: Sequence[StageRow], why: str = "") -> str:
    """Return Markdown: why the run failed, links to curves and report, the scores, the stages.

    MLflow cuts a table at the end of the screen, so columns are few and their words short.
    """
    scored = {line.item: numeric_facts(line.facts) for line in lines if line.stage == SCORE_STAGE}
    scored = {item: numbers for item, numbers in scored.items() if numbers}
    names = [*dict.fromkeys(name for numbers in scored.values() for name in numbers)][:8]
    scores = [
        [name.replace("_", " "), *(number_text(each.get(name, "")) for each in scored.values())] for name in names
    ]
    pages = [(*PAGES[line.stage], line.page) for line in lines if line.stage in PAGES and not line.item and line.page]
    text = [MARKS.sub(r"\\\1", why.replace("\n", " ")), ""] if why else []
    text += [" · ".join(f"[{label}]({page}/{place})" for label, place, page in pages), ""] if pages else []
    if scored:
        text += [table(["", *scored], scores, "---:"), ""]
    rows = [(line.linked, f"{line.state} {line.seconds:.1f} s" if line.seconds else line.state) for line in lines]
    return "\n".join([*text, *([table(["stage", "state"], rows)] if rows else [])])


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---") -> str:
    """Return a Markdown table; ``align`` applies to all columns except the first. In cells, a line break becomes a
    space, and a bar becomes a slash."""
    lines = (head, ["---", *[align] * (len(head) - 1)], *rows)
    clean = ([re.sub(r"\s+", " ", cell).replace("|", "/") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in clean)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings and join keys by dots; an artifact becomes ``stage/key``, a list becomes JSON."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and set(value) == {"artifact", "key"}:
            result[key] = f"{value['artifact']}/{value['key']}"
        elif isinstance(value, Mapping):
            result |= flatten(value, f"{key}.")
        elif isinstance(value, list | tuple):
            result[key] = json.dumps(value, ensure_ascii=False)
        else:
            result[key] = value
    return {mlflow_name(key)[:LONGEST_KEY]: value for key, value in result.items()}


def mlflow_name(name: str) -> str:
    """Replace each character that MLflow's names do not allow by ``_``: ``test+caps.bleu`` → ``test_caps.bleu``."""
    return re.sub(r"[^\w\-. /:]", "_", name)


def is_number(value: object) -> bool:
    """Whether ``value`` is a number and not a bool, so that it becomes a metric in MLflow."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def numeric_facts(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers among the facts, by flat name."""
    return {name: value for name, value in flatten(facts).items() if is_number(value)}


def number_text(value: object) -> str:
    """Format a value for people: ``28,996``, ``34.12``."""
    if isinstance(value, float):
        return f"{value:,.2f}" if 0.1 <= abs(value) < 1e9 or value == 0 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and is_number(value) else f"{value}"
