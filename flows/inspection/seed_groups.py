"""Seeds of a run as a group: ``repro compare A B --seeds``.

A group is all finished runs on record that differ from the named one in ``training.seed`` alone. Code, libraries and
machines may differ, as between runs that are compared one by one.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from flows.inspection.claims import request_of
from flows.inspection.compare import ScoredSystem, find_system, read_sentences, system_of
from flows.runner import records
from flows.runner.artifact_names import is_version, named_with_settings, parse_name
from flows.runner.named_runs import SEED_FIELD, NamedRun, name_seeds, same_object
from flows.runner.recorded_runs import read_runs
from flows.runs import RUNS
from flows.runs.unknown_names import did_you_mean
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from infra.store.store import Store
from infra.tracking.model_version import headline
from model.metric_names import CHRF
from tasks.evaluation.seed_spread import is_own
from tasks.evaluation.significance import GroupDifference, compare_groups, seed_scores
from tasks.evaluation.translation_metrics import score_metric
from tasks.registration.differences import LAST_GROUPS, differing_fields

log = logging.getLogger(__name__)
SeedGroup = Mapping[int, ScoredSystem]
"""The system of each seed."""


@dataclass(frozen=True)
class GroupComparison:
    """One measure of one set: the scores of both groups by seed, and how the second differs from the first."""

    set_name: str
    measure: str
    a: Mapping[int, float]
    b: Mapping[int, float]
    difference: GroupDifference


def find_group(text: str, site: Site, fewest: int = 1) -> SeedGroup:
    """The seeds of a run (``demo``, ``demo --set FIELD=VALUE``) or of the run of a version (``demo/3``).

    Seeds whose runs differ in more, as after a change of the run's file, are left out with a warning. Raises
    BadConfiguration where there are fewer than ``fewest``.
    """
    store = open_store(site)
    named, overrides = named_with_settings(text)
    found: list[ScoredSystem] = []
    if is_version(named):
        found.append(find_system(named, site))
        request = request_of(named, site)
        named = request.run
        overrides = request.overrides
    run = parse_name(named).run
    records.receive_records(store, run)
    known = same_object(read_runs(store.root, run), named)
    found += [_system(text, seed, store) for seed in name_seeds(known, run, overrides)]
    found = [each for each in found if "train" in each.lineage]
    if not found:
        hint = (run not in RUNS and did_you_mean(run, RUNS)) or f": `repro run {text} --seeds 1,2,3`"
        raise BadConfiguration(f"{text!r} has no finished run with scores here{hint}")
    systems: dict[int, ScoredSystem] = {}
    for each in found:
        seed = int(each.lineage["train"].arguments["training"]["seed"])
        if others := _other_settings(found[0], each):
            log.warning("%s, seed %s is left out: it differs in %s", text, seed, ", ".join(others))
        else:
            systems.setdefault(seed, each)
    if len(systems) < fewest:
        hint = f"needed are {fewest} or more: `repro run {text} --seeds 1,2,3`"
        raise BadConfiguration(f"{text!r} has {len(systems)} seed here, {hint}")
    return dict(sorted(systems.items()))


def _system(name: str, seed: NamedRun, store: Store) -> ScoredSystem:
    """The system of one seed; without scores where its run did not end or they were removed."""
    found = {item: store.find("score", key) for item, key in seed.of_model("score").items() if is_own(item)}
    return system_of(name, {item: manifest for item, manifest in found.items() if manifest}, store)


def _other_settings(a: ScoredSystem, b: ScoredSystem) -> list[str]:
    """The fields beside the seed in which two runs differ."""
    fields = [field.name for field in differing_fields([a.lineage, b.lineage])]
    return [name for name in fields if name != SEED_FIELD and name.partition(".")[0] not in LAST_GROUPS[1:]]


def compare_on(set_name: str, a: SeedGroup, b: SeedGroup, site: Site) -> list[GroupComparison]:
    """Compare the ``headline`` and chrF of one set. Raises BadConfiguration if references differ."""
    scores = [[system.scores[set_name] for system in group.values()] for group in (a, b)]
    tables = [[read_sentences(score, site) for score in group] for group in scores]
    trainings = [{seed: each.lineage["train"].key for seed, each in group.items()} for group in (a, b)]
    compared = []
    for name in (headline(*(score.facts for group in scores for score in group)), CHRF):
        measure = score_metric(name, scores[0][0].arguments.get("language", "en"))
        first, second = seed_scores(set_name, measure, *tables)
        of_a = dict(zip(a, first.scores.tolist(), strict=True))
        of_b = dict(zip(b, second.scores.tolist(), strict=True))
        difference = compare_groups(first, second, paired=trainings[0] == trainings[1])
        compared.append(GroupComparison(set_name, name, of_a, of_b, difference))
    return compared
