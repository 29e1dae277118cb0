"""Chooses model and training by the amount of text (``repro new``) from ``text_settings.tsv``; see docs/own-text.md."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from flows.runs.built_in_runs import MULTI30K_ENDE, PAPER_BASE, WMT14_SAMPLE_ENDE
from flows.runs.overrides import override
from flows.runs.run import Run
from infra.errors import BadConfiguration
from model.config.keying import require
from tasks.tables import read_table

BASES = {"tiny": MULTI30K_ENDE, "small": WMT14_SAMPLE_ENDE, "base": PAPER_BASE}
"""The run that each size takes its other settings from."""
OTHER_STAGES = 90.0
OTHER_SHARE = 0.1
"""Stages other than training get OTHER_STAGES seconds and OTHER_SHARE of a budget."""
TABLE = read_table(Path(__file__).with_suffix(".tsv"))
"""Changes to the run of a size, in rows of increasing numbers of pairs."""
FEWEST_UPDATES = 50
MOST_SLOWED = 2.0
"""A slowdown above this, which may be momentary, does not change the choice of the model."""
ENOUGH = 0.4
"""If the time allows less than this share of a model's updates, a smaller model learns more."""


class UpdateTime(NamedTuple):
    """Seconds per update on this machine; other work on it makes updates ``slowdown`` times as slow."""

    seconds: float
    slowdown: float = 1.0


def _of_length(run: Run, updates: int) -> Run:
    """Set the number of updates; scales warm-up, checkpoint and dev intervals with it."""
    share = updates / run.training.updates
    names = ("warmup", "checkpoint_every", "dev_every")
    shortened = {name: max(1, round(getattr(run.training, name) * share)) for name in names}
    return replace(run, training=replace(run.training, updates=updates, **shortened))


def fitting(pairs: int, size: str = "") -> list[Run]:
    """List the run for this many pairs, then smaller runs for less text; only of ``size`` if it is given."""
    rows = [row for row in TABLE if size in ("", row["size"])]
    return [_run_of(row) for row in rows if int(row["pairs"]) <= pairs][::-1] or [_run_of(rows[0])]


def measured_with(pairs: int) -> list[tuple[str, float]]:
    """List text and BLEU of Multi30k's val by the settings for this many pairs, then by those for more text."""
    return [(row["basis"], float(row["bleu"])) for row in TABLE[len(fitting(pairs)) - 1 :] if row["bleu"]]


def _run_of(row: dict[str, str]) -> Run:
    fields = [f"{path}={value}" for path, value in row.items() if "." in path]
    return _of_length(override(BASES[row["size"]], fields), int(row["updates"]))


def for_pairs(run: Run, pairs: int) -> Run:
    """Limit the vocabulary to a size that this many pairs can fill.

    BPE cannot learn more pieces than the text has repeated pairs of pieces, and small text cannot train rare ones.
    """
    size = min(run.vocabulary.size, max(1_000, pairs * 2 // 3))
    return replace(run, vocabulary=replace(run.vocabulary, size=size))


def within(budget: float, runs: list[Run], time_of_update: Callable[[Run], UpdateTime]) -> tuple[Run, UpdateTime]:
    """Choose the first run that learns enough within ``budget`` seconds; return it with the time of its updates.

    The clock ends its training: its updates are those of a machine without other work, and a linear schedule follows
    the clock. Raises BadConfiguration if even the last run gets too few updates without other work, ValueError for a
    training or a warm-up in epochs.
    """
    for name in ("epochs", "warmup_epochs"):
        count = getattr(runs[0].training, name)
        require(count == 0, f"training.{name}", count, "0, and a number of updates")
    alone = not (runs[0].synthetic or runs[0].decoding.ensemble)
    require(alone, "--like", runs[0].name, "a run with one training (no synthetic, no decoding.ensemble)")
    left = max(0.0, budget * (1 - OTHER_SHARE) - OTHER_STAGES)
    for run in runs:
        time = time_of_update(run)
        updates = left * time.slowdown / time.seconds
        likely = updates / min(time.slowdown, MOST_SLOWED)
        if likely >= ENOUGH * run.training.updates or (run is runs[-1] and updates >= FEWEST_UPDATES):
            run = _of_length(run, min(max(each.training.updates for each in runs), int(updates)))
            schedule = "clock" if run.training.schedule == "linear" else run.training.schedule
            training = replace(run.training, minutes=round(left / 60, 2), schedule=schedule)
            return replace(run, training=training), time
    needed = (FEWEST_UPDATES * time.seconds / time.slowdown + OTHER_STAGES) / (1 - OTHER_SHARE) / 60
    raise BadConfiguration(
        f"--budget is {budget / 60:.0f}m, allowed is at least {needed + 1:.0f}m for this text, without other work"
    )
