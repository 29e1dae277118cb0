"""Decides which records the name of a run means. No other module chooses records by name.

It considers the records without overrides, or with the given ones, and never trials of a sweep. ``expect`` does not
count as an override, since limits change no result.

- Artifacts (``show``, ``verify``, ``api.artifact``): for each stage, the artifacts of the newest record with the whole
  stage, finished or not.
- The model (``compare``, ``api.scores`` and ``curves``): weights, scores and curves of one record: the
  newest finished record with scores.
- A group of seeds (``compare --seeds``): the model of each seed; all other overrides are the given ones.

``infra.tracking.registry.resolve`` resolves names of versions: ``demo@champion``, and ``demo`` where only a version is
allowed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.reproduce import STAGES
from flows.runner.recorded_runs import RecordedRun
from flows.runner.records import FINISHED
from flows.runs.overrides import as_options, by_path, changes_results, without_replaced

Place = tuple[str, str]
"""Stage and item."""
SEED_FIELD = "training.seed"


@dataclass(frozen=True)
class NamedRun:
    """The records that a name means, the newest first; all have the same overrides that change results."""

    records: Sequence[RecordedRun]
    remark: str = ""
    """The overrides of the records if the name gives none but every recorded run has some; else ""."""

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
        return made  # no record has the whole stage: the newest artifact of each item

    def of_model(self, stage: str) -> dict[str, str]:
        """The keys of a stage by item for the run's model; empty if no finished run has the stage."""
        finished = [each for each in self.records if each.outcome == FINISHED and _items(each, stage)]
        scored = (each for each in finished if _items(each, "score"))
        chosen = next(scored, next(iter(finished), None))
        return _items(chosen, stage) if chosen else {}


def same_object(records: Iterable[RecordedRun], asked: str) -> list[RecordedRun]:
    """Remove records of other objects: the runs ``FILE.py:A`` and ``FILE.py:B`` may have the same name."""
    return [each for each in records if len({object_of(asked), object_of(each.asked.get("run", ""))} - {""}) < 2]


def object_of(asked: str) -> str:
    """Return file and object of ``folder/FILE.py:NAME``; "" for a run that was named otherwise."""
    return Path(asked).name if ":" in asked else ""


def name_run(records: Iterable[RecordedRun], run: str, overrides: Sequence[str] = ()) -> NamedRun:
    """Choose the records that ``run`` and ``overrides`` mean among the run's ``records``, the newest first."""
    own = [each for each in records if not each.is_trial]
    same = [each for each in own if _effective(each.overrides) == _effective(overrides)]
    if same or overrides or not own:
        return NamedRun(same)
    newest = next((each for each in own if each.outcome == FINISHED), own[0])
    settings = as_options(newest.overrides)
    same = [each for each in own if each.overrides == newest.overrides]
    return NamedRun(same, f"no run {run} without --set is on record here; this is the one with{settings}")


def name_seeds(records: Iterable[RecordedRun], overrides: Sequence[str]) -> list[NamedRun]:
    """Choose the records of each recorded ``training.seed`` with otherwise these overrides, the newest first."""
    by_seed: dict[tuple[str, ...], list[RecordedRun]] = {}
    for each in records:
        if not each.is_trial and _without_seed(each.overrides) == _without_seed(overrides):
            by_seed.setdefault(_effective(each.overrides), []).append(each)
    return [NamedRun(same) for same in by_seed.values()]


def _without_seed(overrides: Sequence[str]) -> tuple[str, ...]:
    return tuple(each for each in _effective(overrides) if not each.startswith(f"{SEED_FIELD}="))


def _effective(overrides: Sequence[str]) -> tuple[str, ...]:
    """Keep the overrides that may change results, in one order."""
    return by_path([each for each in without_replaced(overrides) if changes_results((each,))])


def _items(record: RecordedRun, stage: str) -> dict[str, str]:
    """Map each item of a stage to its key; "" for an item without an artifact."""
    return {row.item: row.key if row.has_artifact else "" for row in record.stages if row.stage == stage}
