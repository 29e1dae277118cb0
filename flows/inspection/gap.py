"""Explains why a score differs from the claimed one: averages and translates again with the claim's settings."""

import fnmatch
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flows.inspection.artifact_graph import sealed_everywhere
from flows.inspection.claims import (
    OTHER_TEXT,
    ClaimedSystem,
    about_training,
    find_claim,
    request_of,
    training_differences,
)
from flows.inspection.compare import ScoredSystem, find_system
from flows.runner.artifact_names import parse_name
from flows.runner.stages_alone import make
from flows.runner.systems import SYSTEM
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from infra.store.manifest import Manifest
from infra.store.store import Artifact, Store
from infra.tracking.model_version import headline
from model.config import Averaging, Decoding, from_json
from model.config.normalise import Normalise
from tasks.corpus.catalogue import NOISE
from tasks.engine.progress import Display
from tasks.evaluation.score_gap import Claim
from tasks.evaluation.seed_spread import is_own
from tasks.evaluation.sentence_bleu import SENTENCE_MEANS
from tasks.stages.average import average
from tasks.stages.gap import gap
from tasks.stages.translate import translate

SEARCH = (("beam",), ("alpha", "length_penalty"), ("max_extra", "min_length"))
"""Causes in decoding: fields of ``Decoding`` that are changed together."""
WAY_OUT = "its run has other text now (`repro compare` lists the change); put it back, or name a newer version"
READ = ("average", "learn_bpe", "shard.{}", "prepare_sets.{}", "translate.{}")
"""Inputs of the translation of a set, and the translation, by their names in a lineage."""


def explain_gap(name: str, score: float | None, as_name: str, set_name: str, site: Site, display: Display) -> Artifact:
    """Return the artifact of the stage ``gap``; makes it and its translations if they are missing.

    Raises BadConfiguration for names, sets and claims that do not exist or do not fit.
    """
    store = open_store(site)
    system = find_system(name, site)
    ours = request_of(name, site)
    claimed = find_claim(as_name, score, ours, site)
    chosen = _choose_set(system, claimed, set_name)
    scored = system.scores[chosen]
    claim = _claim_on(chosen, claimed, scored)
    recorded = list(sealed_everywhere(store))
    differences = tuple(training_differences(claimed, system, ours, recorded))
    changes, not_measured = _decoding_changes(system.lineage, claimed.settings, chosen)
    left_out = [*about_training(system.lineage, ours, recorded, claim.score), *not_measured]
    if claim.set_name not in ("", chosen):
        left_out.insert(0, f"the claim is of {claim.set_name}, this score of {chosen}: other sentences")
    gone = [each for each in differences if each.cost.endswith(OTHER_TEXT)]
    for owner in sorted({claim.name if each.name.startswith("corpus") else system.name for each in gone}):
        left_out.append(f"no command trains with the text of {owner}: {WAY_OUT}")
    theirs = claimed.scores.get(chosen)
    if theirs and theirs.facts["references_sha256"] != scored.facts["references_sha256"]:
        left_out.append(f"the claim has other references for {chosen}")
    joint = {field: value for changed in changes.values() for field, value in changed.items()}

    def stages() -> Artifact:
        return gap.for_item(chosen)(
            system=system.name,
            claim=claim,
            score=store.artifact(scored),
            alone={words: _translate(system.lineage, changed, chosen, store) for words, changed in changes.items()},
            together=_translate(system.lineage, joint, chosen, store) if joint else None,
            theirs=store.artifact(theirs) if theirs else None,
            others={n: store.artifact(each) for n, each in system.scores.items() if is_own(n) and n != chosen},
            differences=differences,
            left_out=tuple(left_out),
        )

    experiment = "systems" if system.name.startswith(SYSTEM) else parse_name(ours.run).run
    return make(site, display, experiment, f"gap {system.name} {chosen}", {"site": "local"}, stages)


def _choose_set(system: ScoredSystem, claimed: ClaimedSystem, wanted: str) -> str:
    """Choose the wanted set, else the claim's, else the last common set (the dev set comes first)."""
    own = [name for name in system.scores if is_own(name)]
    if wanted and wanted not in own:
        raise BadConfiguration(f"--on is {wanted!r}, allowed is a scored set of {system.name}: {', '.join(own)}")
    if wanted or claimed.claim.set_name in own:
        return wanted or claimed.claim.set_name
    common = [name for name in own if name in claimed.scores]
    return sorted(common or own, key=lambda name: NOISE not in name)[-1]


def _claim_on(set_name: str, claimed: ClaimedSystem, scored: Manifest) -> Claim:
    """Return the claim for a set. Raises BadConfiguration for a protocol or a set that the two systems do not share."""
    claim = claimed.claim
    if claim.metric not in ("", *SENTENCE_MEANS, *scored.facts):
        raise BadConfiguration(f"--as is {claim.name!r}, whose score is by {claim.metric}: not a protocol of this card")
    if not claimed.scores:
        return claim
    if set_name not in claimed.scores:
        raise BadConfiguration(f"--as is {claim.name!r}, allowed is a system scored on {set_name}")
    theirs = claimed.scores[set_name].facts
    metric = max(headline(scored.facts), headline(theirs))  # lower-cased if one system writes lower case
    return replace(claim, score=theirs[metric], metric=metric, set_name=set_name)


def _translate(made: Mapping[str, Manifest], changed: Mapping[str, Any], set_name: str, store: Store) -> Artifact:
    """Translate the set again with changed fields of ``Decoding``, or with another ``averaging`` of weights."""
    *inputs, before = (made[each.format(set_name)] for each in READ)
    weights, vocabulary, pairs, prepared = map(store.artifact, inputs)
    search = dict(changed)
    if averaging := search.pop("averaging", None):
        weights = average(store.artifact(made["train"]), averaging)
    decoding = replace(_decoding_of(before), **search)
    normalise = from_json(Normalise, before.arguments["normalise"])
    return translate.for_item(set_name)(weights, vocabulary, pairs, prepared, decoding, normalise)


def _decoding_of(translated: Manifest) -> Decoding:
    try:
        return from_json(Decoding, translated.arguments["decoding"])
    except ValueError as error:
        raise BadConfiguration(f"{translated.stage} {translated.key} is by an earlier release: {error}") from None


def _decoding_changes(
    ours: Mapping[str, Manifest], theirs: Mapping[str, Manifest], set_name: str
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Map each cause in decoding to the settings that undo it; also list the causes that cannot be measured."""
    needed = [each.format(set_name) for each in READ]
    if not ours:
        return {}, ["decoding: not measured, since this file of translations has no model here"]
    if missing := [name for name in needed if name not in ours]:
        return {}, [f"decoding: not measured, without {', '.join(missing)} in this root nothing is translated again"]
    translated = [each for name, each in theirs.items() if name.startswith("translate.")]
    if not translated or "average" not in theirs:
        return {}, ["decoding: not measured, since the claim's is not known"]
    place = needed[-1]
    sides = (ours[place], theirs.get(place, translated[-1]))
    present, claimed = (vars(_decoding_of(side)) for side in sides)
    rest = [
        f"decoding: {name} is {present[name]}, claimed {claimed[name]}: not measured"
        for name in ("numerics", "precision")
        if claimed[name] != present[name]
    ]
    found: dict[str, dict[str, Any]] = {}
    for names in SEARCH:
        changed = {name: claimed[name] for name in names if claimed[name] != present[name]}
        words = ", ".join(f"{name} is {present[name]}, claimed {value}" for name, value in changed.items())
        found |= {words: changed} if changed else {}
    averaging, wanted = (from_json(Averaging, side["average"].arguments["averaging"]) for side in (ours, theirs))
    if averaging == wanted:
        return found, rest
    words = f"checkpoints are {averaging.which} {averaging.count}, claimed {wanted.which} {wanted.count}"
    if not _can_average(ours.get("train"), wanted):
        return found, [f"{words}: not measured, the training did not keep them", *rest]
    return found | {words: {"averaging": wanted}}, rest


def _can_average(train: Manifest | None, wanted: Averaging) -> bool:
    """Whether the training has kept the checkpoints to average."""
    if train and wanted.which == "best":
        return bool(train.arguments["training"].get("patience"))
    return train is not None and len(fnmatch.filter(train.files, "checkpoints/*/model.safetensors")) >= wanted.count
