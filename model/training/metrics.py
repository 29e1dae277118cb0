"""Writes rows of ``metrics.jsonl`` during a training.

Losses stay on the device until the next row is written, so that no update waits for them.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import metric_names as names
from ..data.batch import Batch
from ..errors import JobError, bad_data
from ..job import Facts, Job, Metrics

FACTS = "facts"
"""The key of the facts in the last row of a finished training."""
Values = dict[str, float]


class LossSums:
    """Sums over the micro-batches of one update on one rank."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, device=device)
        self.pieces = self.num_positions = self.padding = 0

    def add(self, loss: Tensor, nll: Tensor, batch: Batch) -> None:
        self.sums += torch.stack([loss.detach(), nll])
        self.pieces += batch.pieces
        self.num_positions += batch.num_positions
        self.padding += batch.padding


class MetricsLogger:
    """Writes the rows of a training on the main rank, with the losses of this rank's share of the batches."""

    def __init__(self, job: Job, total: int, is_main: bool, per_token: Values) -> None:
        """``per_token``: values at one target token per second of metrics that are proportional to that speed."""
        self.per_token = per_token
        self.metrics = Metrics(job.out) if is_main else None
        self.every = job.site.log_seconds
        self.total = self.expected = total  # the clock may end the training before the total
        self.window: list[tuple[int, float, LossSums]] = []
        self.start_clock(0, 0)

    def start_clock(self, update: int, tokens: int) -> None:
        """Start measuring after ``update``, the last one saved, and ``tokens`` target tokens."""
        self.last_saved = self.first = update
        self.tokens = tokens
        self.started = self.last_row_time = time.monotonic()

    def record(self, update: int, rate: float, losses: LossSums, tokens: int, measure: Callable[[], Values]) -> None:
        """Record an update; write a row if one is due. ``tokens`` counts all target tokens up to this update.

        ``measure`` returns further metrics and is called only for a row. Raises JobError like ``check``. Only the main
        rank records: it knows the last checkpoint, and the gradient norm of all ranks.
        """
        if self.metrics is None:
            return
        self.window.append((update, rate, losses))
        if time.monotonic() - self.last_row_time >= self.every or update == self.total:
            self.flush(tokens, measure)

    def flush(self, tokens: int, measure: Callable[[], Values]) -> None:
        """Write a row for the updates since the last one, if any."""
        if not self.window:
            return
        self.check()
        elapsed = time.monotonic() - self.last_row_time
        update, rate, _ = self.window[-1]
        values = self.means() | {names.LEARNING_RATE: rate} | measure()
        if not math.isfinite(values.get(names.GRADIENT_NORM, 0.0)):
            raise self.diverged("the gradient of", update, rate)
        self.window.clear()
        values[names.TOKENS_PER_SECOND] = (tokens - self.tokens) / max(elapsed, 1e-9)
        values |= {name: value * values[names.TOKENS_PER_SECOND] for name, value in self.per_token.items()}
        seconds = (time.monotonic() - self.started) / (update - self.first)  # of an update
        left = seconds * (self.total - update)
        values[names.SECONDS_LEFT] = min(left, values.get(names.SECONDS_LEFT, left))
        self.expected = update + round(values[names.SECONDS_LEFT] / seconds)
        self.write(update, values)
        self.last_row_time = time.monotonic()
        self.tokens = tokens

    def check(self) -> None:
        """Raise JobError naming the first update since the last row whose loss is not finite."""
        if self.window:
            for (update, rate, _), finite in zip(self.window, self.sums().isfinite().all(1).tolist(), strict=True):
                if not finite:
                    raise self.diverged("the loss of", update, rate)

    def means(self) -> Values:
        """Return losses per token, ``perplexity`` (exp of ``nll``: §6.2), and padding since the last row."""
        parts = [losses for _, _, losses in self.window]
        loss, nll = (self.sums().sum(0) / max(1, sum(part.pieces for part in parts))).tolist()
        padding = sum(part.padding for part in parts) / sum(part.num_positions for part in parts)
        return {names.LOSS: loss, names.NLL: nll, names.PADDING: padding, names.PERPLEXITY: to_perplexity(nll)}

    def sums(self) -> Tensor:
        return torch.stack([losses.sums for _, _, losses in self.window]).cpu().double()

    def diverged(self, what: str, update: int, rate: float) -> JobError:
        """Return the error for a number that is not finite; ``what`` ends with a preposition: ``the loss of``."""
        back = f"the last checkpoint is of update {self.last_saved}" if self.last_saved else "there is no checkpoint"
        where = f"{what} update {update} is not finite, at learning rate {rate:.3g}; {back}"
        return JobError("diverged", f"{where}. Lower training.peak or training.factor, or raise training.warmup")

    def write(self, update: int, values: Mapping[str, Any]) -> None:
        if self.metrics:
            self.metrics.write(update, self.expected, values)

    def log_damaged(self, update: int, sentence: str) -> None:
        """Report a skipped checkpoint."""
        print(sentence, file=sys.stderr, flush=True)
        self.write(update, {"damaged": sentence})


def to_perplexity(mean: float) -> float:
    """Return exp(mean); a limit on ``mean`` avoids the overflow of a float."""
    return math.exp(min(mean, 700))


def read_facts(out: Path) -> Facts:
    """Return the facts of a finished training in ``out``. Raises JobError if no row has them."""
    for line in reversed((out / "metrics.jsonl").read_text().splitlines()):
        row = json.loads(line)
        if FACTS in row:
            return row[FACTS]
    raise bad_data(f"{out / 'metrics.jsonl'} has no row with the facts of a finished training")
