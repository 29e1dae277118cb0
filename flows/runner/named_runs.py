"""Decides what the name of a run means: which of its records count. Nothing else chooses among records by a name.

Among the records without overrides (a limit by ``expect`` changes no result, so it is none), or with those that are
given, and never among trials of a sweep:

- Artifacts (``show``, ``verify``, ``api.artifact``): of each stage those of the newest record in
  which the whole stage has artifacts, whether that run finished or not.
- The model (``export``, ``compare``, ``api.scores`` and ``curves``): weights, scores and curves of one record, the
  newest finished one that has scores.
- A group of seeds (``compare --seeds``): the model of each seed, whose overrides otherwise are those that are given.

Names of versions (``demo@champion``, and ``demo`` where only a version can be meant) are for
``infra.tracking.registry.resolve``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.reproduce import STAGES
from flows.runner.recorded_runs import RecordedRun
from flows.runner.records import FINISHED
from flows.runs.overrides import as_options, changes_results, without_replaced

Place = tuple[str, str]
"""Stage and item."""
SEED_FIELD = "training.seed"


@dataclass(frozen=True)
class NamedRun:
    """The records that a name means, all with the same overrides that change results, the newest first."""

    run: str
    records: Sequence[RecordedRun]
    remark: str = ""
    """Which overrides they have, where the name gives none and no run without them is on record; else ""."""

    @property
    def artifacts(self) -> dict[Place, str]:
        """The key of the newest artifact of each stage and item, in the order of the stages."""
        return {(stage, item): key for stage in STAGES for item, key in self._newest(stage).items()}

    def _newest(self, stage: str) -> dict[str, str]:
        made: dict[str, str] = {}
        for each in self.records:
            items = _items(each, stage)
            if items and all(items.values()):
                return items
            for item, key in items.items():
                if key:
                    made.setdefault(item, key)
        return made  # no record has the whole stage

    def of_model(self, stage: str) -> dict[str, str]:
        """The keys of a stage by item, of the run's model; empty where no finished run has the stage."""
        finished = [each for each in self.records if each.outcome == FINISHED and _items(each, stage)]
        scored = (each for each in finished if _items(each, "score"))
        chosen = next(scored, next(iter(finished), None))
        return _items(chosen, stage) if chosen else {}


def same_object(records: Iterable[RecordedRun], asked: str) -> list[RecordedRun]:
    """The records of a run but those of other objects: runs of ``FILE.py:A`` and ``FILE.py:B`` may have one name."""
    return [each for each in records if len({object_of(asked), object_of(each.asked.get("run", ""))} - {""}) < 2]


def object_of(asked: str) -> str:
    """File and object of ``folder/FILE.py:NAME``; "" where a run was not asked for so."""
    return Path(asked).name if ":" in asked else ""


def name_run(records: Iterable[RecordedRun], run: str, overrides: Sequence[str] = ()) -> NamedRun:
    """What ``run`` means, with the overrides of a command; ``records`` are those of the run, the newest first."""
    own = [each for each in records if not each.is_trial]
    same = [each for each in own if _effective(each.overrides) == _effective(overrides)]
    if same or overrides or not own:
        return NamedRun(run, same)
    newest = next((each for each in own if each.outcome == FINISHED), own[0])
    settings = as_options(newest.overrides)
    same = [each for each in own if each.overrides == newest.overrides]
    return NamedRun(run, same, f"no run {run} without --set is on record here; this is the one with{settings}")


def name_seeds(records: Iterable[RecordedRun], run: str, overrides: Sequence[str] = ()) -> list[NamedRun]:
    """What ``run`` means for each ``training.seed`` on record, else with these overrides, the newest first."""
    by_seed: dict[tuple[str, ...], list[RecordedRun]] = {}
    for each in records:
        if not each.is_trial and _without_seed(each.overrides) == _without_seed(overrides):
            by_seed.setdefault(_effective(each.overrides), []).append(each)
    return [NamedRun(run, same) for same in by_seed.values()]


def _without_seed(overrides: Sequence[str]) -> tuple[str, ...]:
    return tuple(each for each in _effective(overrides) if not each.startswith(f"{SEED_FIELD}="))


def _effective(overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides that may change results."""
    return tuple(each for each in without_replaced(overrides) if changes_results((each,)))


def _items(record: RecordedRun, stage: str) -> dict[str, str]:
    """The keys of a stage by item; "" for an item without an artifact."""
    return {row.item: row.key if row.has_artifact else "" for row in record.stages if row.stage == stage}
