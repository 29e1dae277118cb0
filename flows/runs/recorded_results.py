"""What runs gave when they were recorded, from ``expected.json``: scores with a tolerance, and SHA-256 sums of files.

``digests`` are by kind of machine, as results with fast numerics are equal to the bit on one kind alone; ``strict`` are
those of the run with strict numerics, on any x86 CPU. Sums are by stage (``translate dev``) and file.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flows.runs.built_in_runs import RUNS
from flows.runs.overrides import STRICT_NUMERICS, override
from flows.runs.run import Run

EXPECTED = Path(__file__).with_name("expected.json")

Sums = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class RecordedResults:
    """What is recorded of a built-in run."""

    scores: Mapping[str, Mapping[str, float]]
    """Measures by evaluation set."""
    tolerance: Mapping[str, float]
    """How far each measure may be away, in its own points: rounding that differs moves a small model by so much."""
    digests: Mapping[str, Sums] = field(default_factory=dict)
    strict: Sums = field(default_factory=dict)


def recorded_results() -> dict[str, RecordedResults]:
    """What is recorded, by run."""
    return {name: RecordedResults(**known) for name, known in json.loads(EXPECTED.read_text()).items()}


def recorded_sums(run: Run) -> Sums:
    """Sums of files by stage (``translate dev``); empty where none are known for exactly this run."""
    if (run.training.numerics, run.decoding.numerics) != ("strict", "strict"):
        return {}
    known = recorded_results().get(run.name)
    return known.strict if known and known.strict and run == override(RUNS[run.name], STRICT_NUMERICS) else {}
