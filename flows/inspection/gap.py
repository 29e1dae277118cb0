"""Why a score is not the claimed one: what to measure of a version or run, at which cost, and the measurement.

Causes of decoding are undone by averaging and translating again with the claim's values, by the stages of a run and
with their cache. The stage ``gap`` scores them and writes the page.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from flows.inspection.artifact_graph import sealed_everywhere
from flows.inspection.claims import ClaimedSystem, find_claim, request_of, training_differences
from flows.inspection.compare import ScoredSystem, find_system
from flows.inspection.cost import RunCost, stage_costs
from flows.runner.artifact_names import parse_name
from flows.runner.stages_alone import look_up, make
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from infra.store.manifest import Manifest
from infra.store.store import Artifact, Store
from model.config import Averaging, Decoding, from_json
from model.config.normalise import Normalise
from model.metric_names import BLEU, BLEU_SENTENCES
from tasks.engine.progress import Display
from tasks.evaluation.seed_spread import is_own
from tasks.stages.average import average
from tasks.stages.gap import gap
from tasks.stages.translate import translate

LENGTHS = ("max_extra", "max_ratio", "min_length", "min_ratio")
SEARCH = (("beam",), ("alpha", "length_penalty"), LENGTHS)
"""Causes of decoding, as the fields of ``Decoding`` that are undone together."""
Config = TypeVar("Config", Averaging, Decoding, Normalise)


@dataclass(frozen=True)
class GapPlan:
    """What is measured: by the words of each cause of decoding, fields of ``Decoding``, or ``averaging``."""

    site: Site
    store: Store
    system: ScoredSystem
    set_name: str
    arguments: Mapping[str, Any]
    """Of the stage ``gap``, but for the translations."""
    changes: Mapping[str, Mapping[str, Any]]
    experiment: str
    """In MLflow: that of the run."""

    def measure(self) -> Artifact:
        """Call all stages, with the current engine."""
        alone = {words: self._translate(changed) for words, changed in self.changes.items()}
        joint = {name: value for changed in self.changes.values() for name, value in changed.items()}
        together = (self._translate(joint),) if joint else ()
        return gap.for_item(self.set_name)(alone=alone, together=together, **self.arguments)

    def _translate(self, changed: Mapping[str, Any]) -> Artifact:
        made = self.system.lineage
        name = self.set_name
        weights, vocabulary, pairs, prepared = (self.store.artifact(made[each]) for each in _read_by_translate(name))
        search = dict(changed)
        if averaging := search.pop("averaging", None):
            weights = average(self.store.artifact(made["train"]), averaging)
        manifest = made[f"translate.{name}"]
        decoding = replace(_argument(Decoding, manifest), **search)
        again = translate.for_item(name)
        return again(weights, vocabulary, pairs, prepared, decoding, _argument(Normalise, manifest))

    def cost(self) -> RunCost:
        """What averaging and translating again would cost."""
        rows = [row for row in look_up(self.site, self.measure).rows if row.stage != "gap"]
        return RunCost(self.system.name, stage_costs(rows, list(sealed_everywhere(self.store)), self.site))

    def run(self, display: Display) -> Artifact:
        """Make what is missing, in a run of its own in MLflow. Raises the Fault of a stage that fails."""
        title = f"gap {self.system.name} {self.set_name}"
        return make(self.site, display, self.experiment, title, {"site": "local"}, self.measure)


def plan_gap(name: str, claim: float | None, as_name: str, set_name: str, budget: float, site: Site) -> GapPlan:
    """What ``repro gap`` measures; ``budget`` is in minutes of translating again, 0 for any.

    Raises BadConfiguration for names, sets and claims that do not exist or do not fit.
    """
    store = open_store(site)
    system = find_system(name, site)
    ours = request_of(name, site)
    claimed = find_claim(as_name, claim, ours, site)
    chosen = _choose_set(system, claimed, set_name)
    score = system.scores[chosen]
    stated = _claim_on(chosen, claimed, f"{score.facts.get('protocols', '')}; {BLEU_SENTENCES}:")
    changes, left_out = _decoding_changes(system.lineage, claimed.settings, chosen)
    theirs = claimed.scores.get(chosen)
    arguments = {
        "system": system.name,
        "claim": stated,
        "score": store.artifact(score),
        "language": score.arguments["language"],
        "theirs": (store.artifact(theirs),) if theirs else (),
        "others": {n: store.artifact(each) for n, each in system.scores.items() if is_own(n) and n != chosen},
        "differences": tuple(training_differences(claimed, system, ours, list(sealed_everywhere(store)))),
    }
    experiment = "systems" if system.is_foreign else parse_name(ours.run).run
    plan = GapPlan(site, store, system, chosen, arguments, {}, experiment)
    for words, changed in changes.items():
        wider = replace(plan, changes={**plan.changes, words: changed})
        fits = not budget or wider.cost().seconds <= 60 * budget
        plan = wider if fits else plan
        left_out += [] if fits else [f"{words}: not measured, beyond --budget {budget:g}"]
    return replace(plan, arguments={**arguments, "left_out": tuple(left_out)})


def _read_by_translate(set_name: str) -> tuple[str, ...]:
    """What a translation of the set reads, as a lineage names it."""
    return "average", "learn_bpe", f"shard.{set_name}", f"prepare_sets.{set_name}"


def _choose_set(system: ScoredSystem, claimed: ClaimedSystem, wanted: str) -> str:
    """The set that is asked for, else the claim's, else the last that both have: the dev set comes first."""
    own = [name for name in system.scores if is_own(name)]
    if wanted and wanted not in own:
        raise BadConfiguration(f"--set is {wanted!r}, allowed is a scored set of {system.name}: {', '.join(own)}")
    common = [name for name in own if name in claimed.scores]
    return wanted or (claimed.claim.set_name if claimed.claim.set_name in own else (common or own)[-1])


def _claim_on(set_name: str, claimed: ClaimedSystem, protocols: str) -> Any:
    """The claim for a set. Raises BadConfiguration for a protocol or a set that the two systems do not share."""
    claim = claimed.claim
    if claimed.scores and set_name not in claimed.scores:
        raise BadConfiguration(f"--as is {claim.name!r}, allowed is a system scored on {set_name}")
    if claim.metric and f"{claim.metric}:" not in protocols:
        raise BadConfiguration(f"--as is {claim.name!r}, whose score is by {claim.metric}: not a protocol of this card")
    return replace(claim, score=claimed.scores[set_name].facts[BLEU], set_name=set_name) if claimed.scores else claim


def _decoding_changes(
    ours: Mapping[str, Manifest], theirs: Mapping[str, Manifest], set_name: str
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """By the words of each cause of decoding what undoes it, and the causes that cannot be measured."""
    translated = [each for name, each in theirs.items() if name.startswith("translate.")]
    needed = (*_read_by_translate(set_name), f"translate.{set_name}")
    if missing := [name for name in needed if name not in ours]:
        return {}, [f"decoding: not measured, without {', '.join(missing)} in this root nothing is translated again"]
    if not translated or "average" not in theirs:
        return {}, ["decoding: not measured, since the claim's is not known"]
    present = _argument(Decoding, ours[f"translate.{set_name}"])
    claimed = _argument(Decoding, theirs.get(f"translate.{set_name}", translated[-1]))
    found: dict[str, dict[str, Any]] = {}
    for names in SEARCH:
        changed = {n: getattr(claimed, n) for n in names if getattr(claimed, n) != getattr(present, n)}
        words = ", ".join(f"{name} is {getattr(present, name)}, claimed {value}" for name, value in changed.items())
        found |= {words: changed} if changed else {}
    averaging, wanted = (_argument(Averaging, side["average"]) for side in (ours, theirs))
    if averaging == wanted:
        return found, []
    words = f"checkpoints are {_checkpoints(averaging)}, claimed {_checkpoints(wanted)}"
    if why := _not_kept(ours.get("train"), wanted):
        return found, [f"{words}: not measured, {why}"]
    return found | {words: {"averaging": wanted}}, []


def _checkpoints(averaging: Averaging) -> str:
    return f"the {averaging.which} {averaging.count}" if averaging.which == "last" else averaging.which


def _not_kept(train: Manifest | None, wanted: Averaging) -> str:
    """Why a training cannot be averaged so; "" if it can."""
    kept = [name for name in (train.files if train else ()) if re.fullmatch(r"checkpoints/.+/model\.safetensors", name)]
    has = {"last": len([each for each in kept if each.split("/")[1].isdigit()]) >= wanted.count, "kept": bool(kept)}
    training = train.arguments["training"] if train else {}
    has |= {"best": bool(training.get("patience")), "ema": bool(training.get("ema"))}
    return "" if has[wanted.which] else f"the training has kept {len(kept)} checkpoints"


def _argument(kind: type[Config], manifest: Manifest) -> Config:
    """The argument of a stage that is of this class."""
    values = manifest.arguments[kind.__name__.lower()]
    return from_json(kind, {name: value for name, value in values.items() if name != "class"})
