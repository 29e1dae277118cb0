"""Reads the recorded results of runs from ``expected.json``: scores with a tolerance, and SHA-256 sums of files.

``digests`` has sums for each kind of machine: fast numerics give equal bits only on machines of one kind. ``strict``
has sums for strict numerics, on any x86 CPU. Sums are by stage (``translate dev``) and file.
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
    """The recorded results of a built-in run."""

    scores: Mapping[str, Mapping[str, float]]
    """Measures by evaluation set."""
    tolerance: Mapping[str, float]
    """The largest allowed difference of each measure, in its own points: different rounding changes a small model."""
    digests: Mapping[str, Sums] = field(default_factory=dict)
    strict: Sums = field(default_factory=dict)


def recorded_results() -> dict[str, RecordedResults]:
    """Read the recorded results by run."""
    return {name: RecordedResults(**known) for name, known in json.loads(EXPECTED.read_text()).items()}


def recorded_sums(run: Run) -> Sums:
    """Find the sums of files by stage (``translate dev``); empty if none are recorded for exactly this run."""
    if (run.training.numerics, run.decoding.numerics) != ("strict", "strict"):
        return {}
    known = recorded_results().get(run.name)
    return known.strict if known and known.strict and run == override(RUNS[run.name], STRICT_NUMERICS) else {}
