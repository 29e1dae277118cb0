"""What a training says of itself while it runs: rows of ``metrics.jsonl``.

Losses stay on the device until a row is due, so that no update waits for them.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ..data.batches import Batch
from ..errors import JobError
from ..job import Facts, Job, Metrics

FACTS = "facts"
Values = dict[str, float]


class LossSums:
    """Sums over the parts of one update on one rank."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, device=device)
        self.pieces = self.num_positions = self.padding = 0

    def add(self, loss: Tensor, nll: Tensor, batch: Batch) -> None:
        self.sums += torch.stack([loss.detach(), nll])
        self.pieces += batch.pieces
        self.num_positions += batch.num_positions
        self.padding += batch.padding


class MetricsLogger:
    """Writes the rows of a training: the leading rank's, with losses of its part of the batches."""

    def __init__(self, job: Job, total: int, is_main: bool, per_token: Values) -> None:
        """``per_token`` holds metrics that grow with the rate of target pieces, at a rate of one a second."""
        self.per_token = per_token
        self.metrics = Metrics(job.out) if is_main else None
        self.every, self.total = job.site.log_seconds, total
        self.window: list[tuple[int, float, LossSums]] = []
        self.start_clock(0, 0)

    def start_clock(self, update: int, tokens: int) -> None:
        """Start the clock after ``update``, whose checkpoint is the last, and ``tokens`` target pieces."""
        self.last_saved = self.first = update
        self.tokens = tokens
        self.begun = self.written = time.monotonic()

    def record(self, update: int, rate: float, losses: LossSums, tokens: int, measure: Callable[[], Values]) -> None:
        """Take in an update after which ``tokens`` target pieces have been seen; write a row when one is due.

        Only then is ``measure`` asked for what else belongs in a row. Raises JobError as ``check`` does.
        """
        self.window.append((update, rate, losses))
        if time.monotonic() - self.written >= self.every or update == self.total:
            self.flush(tokens, measure)

    def flush(self, tokens: int, measure: Callable[[], Values]) -> None:
        """Write what has been noted since the last row, if anything."""
        if not self.window:
            return
        self.check()
        elapsed = time.monotonic() - self.written
        update, rate, _ = self.window[-1]
        values = self.means() | {"learning_rate": rate} | measure()
        if not math.isfinite(values.get("gradient_norm", 0.0)):
            raise self.diverged("gradient", update, rate)
        self.window.clear()
        values["tokens_per_second"] = (tokens - self.tokens) / max(elapsed, 1e-9)
        values |= {name: value * values["tokens_per_second"] for name, value in self.per_token.items()}
        values["seconds_left"] = (time.monotonic() - self.begun) / (update - self.first) * (self.total - update)
        self.write(update, values)
        self.written, self.tokens = time.monotonic(), tokens

    def check(self) -> None:
        """Raise JobError naming the first update since the last row whose loss is not finite."""
        if self.window:
            for (update, rate, _), finite in zip(self.window, self.sums().isfinite().all(1).tolist(), strict=True):
                if not finite:
                    raise self.diverged("loss", update, rate)

    def means(self) -> Values:
        """Losses per piece, exp of them (``perplexity`` is §6.2's), and the share of cells that are padding, since the
        last row."""
        parts = [losses for _, _, losses in self.window]
        loss, nll = (self.sums().sum(0) / max(1, sum(part.pieces for part in parts))).tolist()
        padding = sum(part.padding for part in parts) / sum(part.num_positions for part in parts)
        perplexities = {"perplexity": to_perplexity(nll), "smoothed_perplexity": to_perplexity(loss)}
        return {"loss": loss, "nll": nll, "padding": padding} | perplexities

    def sums(self) -> Tensor:
        return torch.stack([losses.sums for _, _, losses in self.window]).double().cpu()

    def diverged(self, what: str, update: int, rate: float) -> JobError:
        """The end of a training whose numbers stopped being finite."""
        back = f"the last checkpoint is of update {self.last_saved}" if self.last_saved else "there is no checkpoint"
        return JobError("diverged", f"the {what} of update {update} is not finite, at learning rate {rate:.3g}; {back}")

    def write(self, update: int, values: Values) -> None:
        if self.metrics:
            self.metrics.write(update, self.total, values)

    def log_damaged(self, update: int, sentence: str) -> None:
        """Tell that a checkpoint was passed over."""
        if self.metrics:
            print(sentence, file=sys.stderr, flush=True)
            self.metrics.write(update, self.total, {"damaged": sentence})

    def write_facts(self, facts: Facts) -> None:
        """The last row, from which a job that finds all its work done takes its facts."""
        if self.metrics:
            self.metrics.write(self.total, self.total, {FACTS: facts})


def to_perplexity(mean: float) -> float:
    """A perplexity, kept within what a float holds."""
    return math.exp(min(mean, 700))


def read_facts(out: Path) -> Facts:
    """The facts of a training that has ended in ``out``."""
    for line in reversed((out / "metrics.jsonl").read_text().splitlines()):
        row = json.loads(line)
        if FACTS in row:
            facts: Facts = row[FACTS]
            return facts
    raise JobError("bad_data", f"{out / 'metrics.jsonl'} has no row of a training's end")
