"""Compares the results of a run with strict numerics with the expected ones (docs/reproducibility.md)."""

from collections.abc import Mapping
from importlib.metadata import version

from flows.runner.outcome import Outcome
from infra.store.store import Store


def compare_with_expected(outcome: Outcome, store: Store, expected: Mapping[str, Mapping[str, str]]) -> str:
    """A sentence on whether the stages gave the files in ``expected``; empty where none of them is done."""
    equal: list[str] = []
    different: list[str] = []
    for row in outcome.rows:
        stage = f"{row.stage} {row.item}".strip()
        manifest = store.find(row.stage, row.key) if stage in expected else None
        if manifest:
            sums = {name: manifest.files.get(name, {}).get("sha256") for name in expected[stage]}
            (equal if sums == expected[stage] else different).append(stage)
    if different:
        return f"{', '.join(different)}: not as in flows/runs/expected.json (this is torch {version('torch')})"
    return f"{', '.join(equal)}: as in flows/runs/expected.json, bit for bit" if equal else ""
