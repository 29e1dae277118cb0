"""Schedules in which one run after the other registers a model, with the real code of registration and promotion."""

import json
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from unittest.mock import patch

from toy_stages import Quiet

from infra.site import Site
from infra.store.local import LocalStore
from infra.store.store import Artifact
from infra.tracking.model_files import stored_damage
from infra.tracking.model_logging import TextModel
from infra.tracking.model_version import history
from simulated.machine import Fault, Killed, Machine, Violation
from simulated.pipeline import ROOT, Start
from simulated.registry import REQUEST_FAULTS, URI, Registry, RegistryTracker, simulated_registry
from simulated.schedules import Phase, Schedule
from simulated.system_calls import simulated_system
from tasks.engine.planner import Attempt, Planner, Scope
from tasks.engine.run_settings import RunSettings
from tasks.engine.runner import Runner
from tasks.engine.stage import Facts, engine, stage, stage_run_id
from tasks.registration.lineage import lineage
from tasks.registration.promotion import register_version
from tasks.registration.version_tags import version_tags
from tasks.stages.register import _still_registered

ORDER = ("learn_bpe", "average", "score", "register")
MOST_CALLS = 800
KINDS = ("kill", "kill", "kill", "power", "error", *REQUEST_FAULTS)
MODEL = "demo"
says = 0
"""Decides which weights are made; their BLEU is this number."""


@dataclass(frozen=True)
class Number:
    value: int


@stage(version=1)
def learn_bpe(out: Path, number: Number) -> Facts:
    (out / "tokenizer.json").write_text(f"{number.value}")
    return {}


@stage(version=1)
def average(out: Path, vocabulary: Artifact) -> Facts:
    vocabulary.path()
    (out / "weights").write_text(f"{says}")
    return {}


@stage(version=1)
def score(out: Path, weights: Artifact) -> Facts:
    bleu = (weights.path() / "weights").read_text()
    (out / "score").write_text(bleu)
    return {"bleu": float(bleu), "references_sha256": "the same set", "signature": "13a"}


@stage(version=1, still_valid=_still_registered)
def register(out: Path, weights: Artifact, vocabulary: Artifact, card: Artifact) -> Facts:
    tags = version_tags({"val": card}, {}, "val", lineage([weights, vocabulary, card]))
    folders = {"weights": weights.path(), "vocabulary": vocabulary.path()}
    model = TextModel(Path("code.py"), Path("package"), folders, {}, (), ())
    registered = register_version(URI, ROOT, stage_run_id(), MODEL, model, tags, modified=False, min_champion_bleu=0.0)
    (out / "version.json").write_text(json.dumps(registered))
    return {}


def build() -> None:
    vocabulary = learn_bpe(Number(1))
    weights = average(vocabulary)
    register(weights, vocabulary, score(weights))


def schedule_of(seed: int) -> Schedule:
    """The schedule of a seed: one run after the other, each with faults; some force the weights anew."""
    random = Random(seed)
    phases = []
    for number in range(random.choice((1, 2, 2, 3))):
        forced = ("average",) if number and random.random() < 0.6 else ()
        faults = {}
        for _ in range(random.randint(0, 2)):
            fault = Fault(random.choice(KINDS), 0, random.randint(1, MOST_CALLS), random.getrandbits(16))
            faults[fault.at] = fault
        start = Start(1, forced, f"attempt-{number}" if forced else "")
        phases.append(Phase((start,), tuple(faults.values()), world_changes=random.random() < 0.6))
    return Schedule(seed, tuple(phases))


def run(schedule: Schedule) -> list[str]:
    """Run a schedule, then the pipeline without faults until it has nothing to do. Raises Violation."""
    global says
    random, says = Random(schedule.seed), 10
    machine = Machine(f"{ROOT}")
    registry = Registry(machine, ROOT)
    with (
        simulated_system(machine, random),
        simulated_registry(registry),
        patch("tasks.engine.executor.provenance", lambda: {"at": "now"}),
    ):
        for phase in schedule.phases:
            says += phase.world_changes * random.choice((-1, 1))
            machine.log.append(f"weights of BLEU {says}")
            (process,) = machine.run([partial(_run, registry, phase.starts[0])], phase.faults)
            error = process.error
            if error and not isinstance(error, Killed) and not process.disturbed:
                raise Violation(f"the run ended with {error!r}") from error
            _check_history(registry)
        for _ in range(2):
            before = len(registry.found), dict(registry.aliases)
            (process,) = machine.run([partial(_run, registry, Start(1))], ())
            if process.error:
                raise Violation(f"a run without faults ended with {process.error!r}") from process.error
            _check_history(registry)
            machine.observe(partial(_check_agreement, registry))
        if before != (len(registry.found), registry.aliases):
            raise Violation("a run that has nothing to do registers")
    return machine.log


def _run(registry: Registry, start: Start) -> None:
    store, site = LocalStore(ROOT), Site(root=ROOT, tracking_uri=URI)
    scope = Scope(ORDER, attempt=Attempt(frozenset(start.forced), start.attempt))
    planner = Planner(store, site, scope)
    with engine(planner):
        build()
    tracker = RegistryTracker(registry)
    runner = Runner(RunSettings(store, site, scope, Quiet(), tracker, plan=planner.lookups))  # type: ignore[arg-type]
    with engine(runner):
        build()
    registry.was_asked = runner.rows[-1].state == "completed"


def _check_history(registry: Registry) -> None:
    """At any time: an alias stands on a version that says why, whose model is stored; no move is told twice."""
    found = {f"{version.version}": version for version in registry.versions()}
    for alias, number in registry.aliases.items():
        if not [move for move in found[number].promotions if move.alias == alias]:
            raise Violation(f"{alias} is version {number}, which does not say why")
    for version in found.values():
        if registry.models[version.source.rpartition("/")[2]].status != "READY":
            raise Violation(f"version {version.version} has a model that is not stored")
    for alias in registry.aliases:
        moves = [move.version for move in history(found.values()) if move.alias == alias]
        if any(one == other for one, other in pairwise(moves)):
            raise Violation(f"a move of {alias} is told twice: {moves}")


def _check_agreement(registry: Registry) -> None:
    """After a run that ended well: its version, the aliases and the stored files are those of the manifests."""
    manifests = {manifest.stage: manifest for manifest in LocalStore(ROOT).list()}
    told = json.loads((ROOT / "register" / manifests["register"].key / "version.json").read_text())
    version = next(each for each in registry.versions() if each.version == told["version"])
    for name in ("average", "learn_bpe"):
        if version.digests[name] != manifests[name].content:
            raise Violation(f"version {version.version} was not made from the {name} that its manifest names")
    if version.tags["dev_bleu"] != f"{manifests['score'].facts['bleu']}":
        raise Violation(f"version {version.version} has another score than its manifest")
    if registry.was_asked and "candidate" not in version.aliases:
        raise Violation(f"candidate is not version {version.version}, which was registered last")
    champion = next(each for each in registry.versions() if "champion" in each.aliases)
    if float(champion.tags["dev_bleu"]) < float(version.tags["dev_bleu"]):
        raise Violation(f"champion is version {champion.version}, which is worse than version {version.version}")
    # MLflow does not sync its files. A hit does not read them; whoever loads the version does.
    if registry.was_asked and (damage := stored_damage(URI, version)):
        raise Violation(f"version {version.version}: {damage}")
