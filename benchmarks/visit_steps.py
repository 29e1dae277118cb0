"""The steps of ``visit.py`` that are no benchmark of their own: ``visit_steps.py STEP --json FILE``."""

import argparse
import importlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import PROJECT_ROOT, restart_as_job

STEPS = {
    "probe": "visit_kernels.probe",
    "tests": "visit_steps.run_tests",
    "profile": "visit_kernels.profile_updates",
    "attention": "visit_kernels.attention",
    "train": "visit_training.train",
    "repeat": "visit_training.repeat",
    "translate": "visit_training.translate",
    "precisions": "visit_training.precisions",
}
"""The function of each step, in this folder: from the arguments to what the report shows."""
TESTS = (
    "model/test_devices.py",
    "model/network/test_padding.py",
    "model/decoding/test_static_decoder.py",
    "model/test_gpu.py",
)
"""The files with tests for a GPU, in the order in which they run."""


def main() -> None:
    restart_as_job()
    chosen = parse()
    module, _, function = STEPS[chosen.step].partition(".")
    found = getattr(importlib.import_module(f"benchmarks.{module}"), function)(chosen)
    chosen.json.write_text(json.dumps(found, indent=1))


def parse() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    flags.add_argument("step", choices=STEPS)
    flags.add_argument("--device", choices=("cpu", "cuda"), required=True)
    flags.add_argument("--size", choices=("full", "tiny"), required=True)
    flags.add_argument("--work", type=Path, required=True, help="a folder that the steps of a visit share")
    flags.add_argument("--out", type=Path, required=True, help="for files that are kept")
    flags.add_argument("--json", type=Path, required=True, help="write the result there")
    flags.add_argument("--run", default="", help="whose data, of those packed")
    flags.add_argument("--name", default="", help="of the training's folder (that of the run)")
    flags.add_argument("--seconds", type=float, default=float("inf"), help="a training stops then, with a checkpoint")
    flags.add_argument("--stop-at", type=int, default=0, help="a training stops after this update, with a checkpoint")
    flags.add_argument("--short", action="store_true", help="a training of few updates, with dropout everywhere")
    return flags.parse_args()


@dataclass
class Outcomes:
    """Counts the tests of a pytest session, and rewrites the counts after each, since the session may be killed."""

    file: Path
    counts: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] = self.counts.get(report.outcome, 0) + 1
        if report.outcome == "failed":
            self.failed[report.nodeid] = str(report.longrepr)[-1_000:]
        self.file.write_text(json.dumps(self.facts()))

    def facts(self) -> dict[str, Any]:
        return {"counts": self.counts, "failed": self.failed}


def run_tests(chosen: argparse.Namespace) -> dict[str, Any]:
    """The tests that need a GPU; on a CPU those that also have a variant for it."""
    import pytest

    outcomes = Outcomes(chosen.json)
    words = ["-m", "gpu"] if chosen.device == "cuda" else ["-m", "not gpu and not slow"]
    files = [str(PROJECT_ROOT / "tests" / name) for name in TESTS]
    pytest.main(["-p", "no:cacheprovider", "-v", *words, *files], plugins=[outcomes])
    return outcomes.facts()


if __name__ == "__main__":
    main()
