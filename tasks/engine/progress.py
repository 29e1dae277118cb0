"""Progress of a run: the ``Display`` protocol, and metrics as text."""

from collections.abc import Sequence
from typing import Any, Protocol

from model.metric_names import DEV_PERPLEXITY, LOSS, SECONDS_LEFT, SENTENCES_PER_SECOND, TOKENS_PER_SECOND
from tasks.durations import duration
from tasks.engine.lookup import Miss
from tasks.engine.planner import StageResult
from tasks.engine.stage import StageCall


class Display(Protocol):
    """Shows a run to the user. An implementation may ignore any call."""

    def begin(self, call: StageCall, missing: Miss) -> None: ...
    def progress(self, call: StageCall, done: float, total: float, text: str) -> None: ...
    def say(self, text: str) -> None: ...
    def end(self, row: StageResult) -> None: ...


def describe_metrics(rows: Sequence[dict[str, Any]]) -> str:
    """The newest metrics as text: ``loss 3.21 · dev perplexity 8.4 · 5,210 tokens/s · 3 min left``."""
    newest = {name: value for row in rows for name, value in row.items()}
    forms = {
        LOSS: "loss {:.3f}",
        DEV_PERPLEXITY: "dev perplexity {:.2f}",
        TOKENS_PER_SECOND: "{:,.0f} tokens/s",
        SENTENCES_PER_SECOND: "{:,.1f} sentences/s",
    }
    parts = [form.format(newest[name]) for name, form in forms.items() if isinstance(newest.get(name), int | float)]
    if isinstance(newest.get(SECONDS_LEFT), int | float):
        left = newest[SECONDS_LEFT]
        # A training whose minutes are over goes on until it has as many checkpoints as are averaged.
        parts.append(f"{duration(left)} left" if left else "saves its last checkpoints")
    return " · ".join(parts)
