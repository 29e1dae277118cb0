"""Checks whether a finished built-in run reproduces its recorded results (``flows/runs/expected.json``)."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flows.runner.request import ResolvedRun, RunRequest, make_plan
from flows.runs.recorded_results import RecordedResults, Sums, recorded_results
from infra.errors import BadConfiguration
from infra.guards.path_names import file_name
from infra.site import open_store
from infra.store.store import Store
from tasks.engine.planner import StageResult

NOT_DONE = ("miss", "waits")


@dataclass(frozen=True)
class ReproductionCheck:
    """What agrees with the record, what differs, and what could not be compared."""

    run: str
    agrees: tuple[str, ...]
    differs: tuple[str, ...]
    not_compared: str = ""
    """Why the weights were not compared; "" if they were."""

    @property
    def is_reproduced(self) -> bool:
        return not self.differs

    def __str__(self) -> str:
        if self.differs:
            return f"{self.run}: not reproduced, because {'; '.join(self.differs)}"
        note = f" ({self.not_compared})" if self.not_compared else ""
        return f"{self.run}: reproduced: {'; '.join(self.agrees)}{note}"

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "reproduced": self.is_reproduced}


def check_run(name: str, site: str) -> ReproductionCheck:
    """Compare the finished stages of the run without overrides in the root. Runs nothing.

    Raises BadConfiguration for a run without recorded results.
    """
    expected = expected_of(name)
    resolved = RunRequest(name, until="score", site=site).resolve()
    return compare_results(name, make_plan(resolved).outcome.rows, open_store(resolved.site), expected)


def expected_of(name: str) -> RecordedResults:
    """Return the recorded results of a run. Raises BadConfiguration if there are none."""
    known = recorded_results()
    if name not in known:
        raise BadConfiguration(f"nothing is recorded of run {name!r}, recorded are: {', '.join(known)}")
    return known[name]


def fresh_run(request: RunRequest) -> ResolvedRun:
    """Resolve the run in ``<root>/check/<run>``, which is emptied first and kept afterwards.

    Forced stages in the run's own root would not do: they replace artifacts of registered versions, so a check that
    finds other bits would damage these versions.
    """
    resolved = request.resolve()
    folder = resolved.site.root / "check" / file_name(resolved.run.name)
    shutil.rmtree(folder, ignore_errors=True)
    alone = replace(resolved.site, root=folder, remote="", tracking_uri="", tracking_file="")
    return replace(resolved, site=alone)


def compare_results(
    run: str, rows: Sequence[StageResult], store: Store, expected: RecordedResults
) -> ReproductionCheck:
    """Compare the planned stages of a run with the record. A damaged or missing artifact counts as a difference."""
    missing = [f"{row.place} is not there as it was made ({row.miss})" for row in rows if row.miss]
    kind = kind_of(rows, store)
    sums = expected.digests.get(kind, {})
    found = [*_compare_scores(rows, expected), *compare_files(rows, store, sums, kind)]
    recorded = ", ".join(expected.digests) or "nothing"
    why = f"recorded is {recorded}, this is {kind}" if kind else "the training does not say on which kernels it ran"
    not_compared = "" if sums else f"weights not compared: {why}"
    agrees = tuple(sentence for sentence, fits in found if fits)
    differs = (*missing[:1], *(sentence for sentence, fits in found if not fits))
    return ReproductionCheck(run, agrees, differs, not_compared)


def _compare_scores(rows: Sequence[StageResult], expected: RecordedResults) -> Iterator[tuple[str, bool]]:
    found = {row.item: row.facts for row in rows if row.stage == "score"}
    for name, measures in expected.scores.items():
        for measure, recorded in measures.items():
            tolerance = expected.tolerance[measure]
            value = found.get(name, {}).get(measure)
            allowed = f"recorded is {recorded:.2f} ± {tolerance:.2f}"
            if value is None:
                yield f"{name} has no {measure}, {allowed}", False
            else:
                yield f"{name} {measure} is {value:.2f}, {allowed}", abs(value - recorded) <= tolerance


def compare_files(rows: Sequence[StageResult], store: Store, sums: Sums, kind: str) -> Iterator[tuple[str, bool]]:
    """Compare files of finished stages with the sums recorded for ``kind``: yields a sentence and whether it agrees."""
    for row in rows:
        recorded = {} if row.state in NOT_DONE else sums.get(row.place, {})
        manifest = store.find(row.stage, row.key) if recorded else None
        for name in recorded:
            fits = manifest is not None and manifest.files.get(name, {}).get("sha256") == recorded[name]
            says = "is as recorded" if fits else "differs from the record"
            yield f"{name} of {row.place} {says} of {kind}", fits


def kind_of(rows: Sequence[StageResult], store: Store) -> str:
    """Describe the machine that trained: kernels, threads, ranks and torch; "" if the manifest does not say."""
    train = next((row for row in rows if row.stage == "train" and row.state not in NOT_DONE), None)
    manifest = store.find(train.stage, train.key) if train else None
    if manifest is None or "kernels" not in manifest.facts:
        return ""
    torch = manifest.made.get("libraries", {}).get("torch", "")
    tokens = manifest.facts.get("micro_batch_tokens")
    parts = f", micro-batches of {tokens:,} tokens" if tokens else ""
    return f"{manifest.facts['kernels']}, {manifest.facts['ranks']} ranks, torch {torch}{parts}"
