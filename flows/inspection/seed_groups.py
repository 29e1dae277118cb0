"""Compares groups of seeds of runs: ``repro compare A B --seeds``.

A group holds all finished recorded runs that differ from the named one only in ``training.seed``.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl

from flows.inspection.claims import request_of
from flows.inspection.compare import ScoredSystem, find_system, system_of
from flows.runner import records
from flows.runner.artifact_names import is_version, named_with_settings, parse_name
from flows.runner.named_runs import SEED_FIELD, name_seeds, same_object
from flows.runner.recorded_runs import read_runs
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from infra.tracking.model_version import headline
from tasks.evaluation.score_gap import Condition, measure
from tasks.evaluation.seed_spread import is_own
from tasks.evaluation.significance import TAIL, GroupDifference, SeedScores, compare_groups, sequential_tails
from tasks.evaluation.translation_metrics import Measured
from tasks.registration.differences import LAST_GROUPS, differing_fields

log = logging.getLogger(__name__)
SeedGroup = Mapping[int, ScoredSystem]
"""The system of each seed."""


@dataclass(frozen=True)
class GroupComparison:
    """The scores of both groups by seed, for one measure and set, and how the second group differs from the first."""

    set_name: str
    measure: str
    a: Mapping[int, float]
    b: Mapping[int, float]
    difference: GroupDifference


def find_group(text: str, site: Site, fewest: int = 1) -> SeedGroup:
    """Find the seeds of a run (``demo``, ``demo --set FIELD=VALUE``) or of a version's run (``demo/3``).

    Omits, with a warning, seeds with other differences, such as after a change of the run's file. Raises
    BadConfiguration if there are fewer than ``fewest``.
    """
    store = open_store(site)
    named, overrides = named_with_settings(text)
    found = [find_system(named, site)] if is_version(named) else []
    if found:
        request = request_of(named, site)
        named, overrides = request.run, request.overrides
    run = parse_name(named).run
    records.receive_records(store, run)
    known = same_object(read_runs(store.root, run), named)
    for named_seed in name_seeds(known, overrides):
        keys = {item: key for item, key in named_seed.of_model("score").items() if is_own(item)}
        found.append(system_of(text, {item: store.find("score", key) for item, key in keys.items()}, store))
    found = [each for each in found if "train" in each.lineage]
    systems: dict[int, ScoredSystem] = {}
    for each in found:
        seed = int(each.lineage["train"].arguments["training"]["seed"])
        names = (field.name for field in differing_fields([found[0].lineage, each.lineage]))
        if others := [name for name in names if name != SEED_FIELD and name.partition(".")[0] not in LAST_GROUPS[1:]]:
            log.warning("%s, seed %s is left out: it differs in %s", text, seed, ", ".join(others))
        else:
            systems.setdefault(seed, each)
    if len(systems) < fewest:
        raise BadConfiguration(f"seeds of {text!r} with scores here are {len(systems)}, allowed are {fewest} or more")
    return dict(sorted(systems.items()))


def compare_on(
    set_name: str, a: SeedGroup, b: SeedGroup, site: Site, *, metric: str = "", budget: int = 0
) -> GroupComparison:
    """Compare a metric of one set, by default the ``headline``; with a ``budget`` of seeds, as in ``decide``.

    Raises BadConfiguration if references differ.
    """
    trainings = [{(seed, each.lineage["train"].key) for seed, each in group.items()} for group in (a, b)]
    shared = sorted(seed for seed, _ in trainings[0] & trainings[1])
    paired = 2 <= len(shared) == min(len(a), len(b))
    if paired:  # further seeds of one group have no partner
        a, b = ({seed: group[seed] for seed in shared} for group in (a, b))
    groups = [[system.scores[set_name] for system in group.values()] for group in (a, b)]
    scores = [*groups[0], *groups[1]]
    if len({score.facts["references_sha256"] for score in scores}) > 1:
        raise BadConfiguration(f"set {set_name} has different references in these runs")
    metric = metric or headline(*(score.facts for score in scores))
    language = scores[0].arguments.get("language", "en")
    store = open_store(site)
    folders = [[store.artifact(score).path() for score in group] for group in groups]
    first, second = (SeedScores.of([_measured(each, metric, language) for each in group]) for group in folders)
    tail = sequential_tails(budget, paired=paired)[len(b) - 2] if budget else TAIL
    difference = compare_groups(first, second, tail, paired=paired)
    of_a = dict(zip(a, first.scores.tolist(), strict=True))
    return GroupComparison(set_name, metric, of_a, dict(zip(b, second.scores.tolist(), strict=True)), difference)


@cache
def _measured(folder: Path, metric: str, language: str) -> Measured:
    """Measure one seed; all seeds resample the same sentences."""
    return measure(Condition.of(pl.read_parquet(folder / "sentences.parquet"), metric), language)
