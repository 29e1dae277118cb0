"""What a run with strict numerics must give: the SHA-256 sums in ``expected.json``, by run, stage and file."""

import json
from collections.abc import Mapping
from pathlib import Path

from flows.runs.catalogue import RUNS
from flows.runs.overrides import STRICT_NUMERICS, override
from flows.runs.run import Run

EXPECTED = Path(__file__).with_name("expected.json")


def expected_sums(run: Run) -> Mapping[str, Mapping[str, str]]:
    """Sums of files by stage (``translate dev``); empty where none are known for exactly this run."""
    if (run.training.numerics, run.decoding.numerics) != ("strict", "strict"):
        return {}
    known: dict[str, dict[str, dict[str, str]]] = json.loads(EXPECTED.read_text())
    named = known.get(run.name, {})
    return named if named and run == override(RUNS[run.name], STRICT_NUMERICS) else {}
