"""Seeds of a run as a group: ``repro compare A B --seeds``.

A group is all finished runs on record that differ from the named one in ``training.seed`` alone. Code, libraries and
machines may differ, as between runs that are compared one by one.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flows.inspection.compare import ScoredSystem, common_sets, find_system, read_sentences, system_of
from flows.runner import records
from flows.runner.artifact_names import is_version, named_with_settings, parse_name
from flows.runner.named_runs import NamedRun, name_seeds
from flows.runner.recorded_runs import RecordedRun, read_runs
from flows.runs import RUNS
from flows.runs.unknown_names import did_you_mean
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from infra.store.manifest import Manifest
from infra.store.store import Store
from tasks.evaluation.seed_spread import MEASURES, is_own
from tasks.evaluation.significance import GroupDifference, SeedScores, compare_groups
from tasks.evaluation.system_comparison import same_sentences
from tasks.evaluation.translation_metrics import ScoreMetric, score_metrics
from tasks.registration.differences import LAST_GROUPS, differing_fields

log = logging.getLogger(__name__)
SEED = "training.seed"


@dataclass(frozen=True)
class SeedGroup:
    """A name to display and the system of each seed."""

    name: str
    systems: Mapping[int, ScoredSystem]

    @property
    def first(self) -> ScoredSystem:
        """The system that stands for the group."""
        return next(iter(self.systems.values()))

    def trainings(self, seeds: Iterable[int]) -> list[str]:
        """The keys of the trainings of these seeds."""
        return [self.systems[seed].lineage["train"].key for seed in seeds]


@dataclass(frozen=True)
class GroupComparison:
    """One measure of one set: the scores of both groups by seed, and how the second differs from the first."""

    set_name: str
    measure: str
    a: Mapping[int, float]
    b: Mapping[int, float]
    difference: GroupDifference


def find_group(text: str, site: Site) -> SeedGroup:
    """The seeds of a run (``demo``, ``demo --set FIELD=VALUE``) or of the run of a version (``demo/3``).

    Seeds whose runs differ in more, as after a change of the run's file, are left out with a warning. Raises
    BadConfiguration where there is none.
    """
    store = open_store(site)
    named, overrides = named_with_settings(text)
    version = find_system(named, site) if is_version(named) else None
    run = version.name.partition("/")[0] if version else parse_name(named).run
    records.receive_records(store, run)
    known = [*read_runs(store.root, run)]
    if version:
        overrides = _overrides_of(version, known)
    found = [version] if version else []
    found += [system for each in name_seeds(known, run, overrides) if (system := _system(text, each, store))]
    if not found:
        hint = "" if run in RUNS or known else did_you_mean(run, RUNS)
        hint = hint or f": `repro run {text} --seeds 1,2,3`"
        raise BadConfiguration(f"{text!r} has no finished run with scores here{hint}")
    systems: dict[int, ScoredSystem] = {}
    for each in found:
        seed = int(each.lineage["train"].arguments["training"]["seed"])
        if others := _other_settings(found[0], each):
            log.warning("%s, seed %s is left out: it differs in %s", text, seed, ", ".join(others))
        else:
            systems.setdefault(seed, each)
    return SeedGroup(text, dict(sorted(systems.items())))


def _system(name: str, seed: NamedRun, store: Store) -> ScoredSystem | None:
    """The system of one seed; None where its run did not end or its artifacts were removed."""
    keys = {item: key for item, key in seed.of_model("score").items() if is_own(item)}
    scores = {item: manifest for item, key in keys.items() if (manifest := store.find("score", key))}
    found = system_of(name, scores, store)
    return found if scores and "train" in found.lineage else None


def _overrides_of(version: ScoredSystem, known: Iterable[RecordedRun]) -> tuple[str, ...]:
    """The overrides of the run that made a version's scores."""
    keys = {score.key for score in version.scores.values()}
    made = (each for each in known if keys <= {row.key for row in each.stages if row.stage == "score"})
    newest = next(made, None)
    return newest.overrides if newest else ()


def _other_settings(a: ScoredSystem, b: ScoredSystem) -> list[str]:
    """The fields beside the seed in which two runs differ."""
    fields = [field.name for field in differing_fields([a.lineage, b.lineage])]
    return [name for name in fields if name != SEED and name.partition(".")[0] not in LAST_GROUPS[1:]]


def compare_seed_groups(a: SeedGroup, b: SeedGroup, site: Site) -> list[GroupComparison]:
    """Compare the ``MEASURES`` of every set that all seeds have. Raises BadConfiguration for fewer than two seeds."""
    for group in (a, b):
        if len(group.systems) < 2:
            raise BadConfiguration(
                f"{group.name!r} has {len(group.systems)} seed here, needed are two or more: "
                f"`repro run {group.name} --seeds 1,2,3`"
            )
    paired = a.systems.keys() == b.systems.keys() and a.trainings(a.systems) == b.trainings(b.systems)
    found = []
    for name in common_sets(*a.systems.values(), *b.systems.values()):
        scores = [[each.scores[name] for each in group.systems.values()] for group in (a, b)]
        language = scores[0][0].arguments.get("language", "en")
        for measure in (each for each in score_metrics(language) if each.name in MEASURES):
            first, second = seed_scores(name, measure, scores, site)
            of_a = dict(zip(a.systems, first.scores.tolist(), strict=True))
            of_b = dict(zip(b.systems, second.scores.tolist(), strict=True))
            difference = compare_groups(first, second, paired=paired)
            found.append(GroupComparison(name, measure.name, of_a, of_b, difference))
    return found


def seed_scores(
    name: str, measure: ScoreMetric, groups: Sequence[Sequence[Manifest]], site: Site
) -> tuple[SeedScores, ...]:
    """The scores of the seeds of each group on the set ``name``. Raises BadConfiguration if references differ."""
    tables = [[read_sentences(score, site) for score in group] for group in groups]
    base = tables[0][0]
    for table in (each for group in tables for each in group):
        same_sentences(name, base, table)
    references = base["reference"].to_list()
    return tuple(
        SeedScores.of(measure, [table["hypothesis"].to_list() for table in group], references) for group in tables
    )
