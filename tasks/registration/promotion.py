"""Creates a version in MLflow's registry and moves the aliases ``candidate`` and ``champion``.

The champion is chosen by BLEU on the dev set alone (``becomes_champion``); test scores never decide.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from infra.servers.credentials import hide_password
from infra.tracking.model_files import MODEL_ID, stored_damage
from infra.tracking.model_logging import TextModel, log_model, store_again
from infra.tracking.model_version import FIRST, Version
from infra.tracking.registry import create_version, set_alias, set_decision, versions
from tasks.registration.differences import DifferingField
from tasks.registration.version_tags import model_about, model_metrics, run_pages, version_description

MEASURED = (".bleu", ".chrf", ".perplexity", "dev_bleu", "test_bleu")
"""Ends of the tags by which a version is told from one that was measured otherwise."""
WHY_CANDIDATE = "the newest run without overrides"


def becomes_champion(
    tags: Mapping[str, str], champion: Version | None, first: bool, min_bleu: float
) -> tuple[bool, str]:
    """Whether a version with these tags becomes champion, and why: by BLEU (13a, cased) on the same dev set.

    ``first``: the model has no other version. With less BLEU than ``min_bleu`` no version becomes champion.
    """
    own = f"dev BLEU {float(tags['dev_bleu']):.2f} on {tags['dev_set']}"
    if float(tags["dev_bleu"]) < min_bleu:
        return False, f"{own}, below the {min_bleu:g} that a champion needs (min_champion_bleu)"
    if champion is None:
        return True, f"{own}, {FIRST}: there was nothing to compare it with" if first else f"{own}, the first champion"
    if champion.tags.get("dev_digest", "") != tags["dev_digest"]:
        return False, f"the champion, version {champion.version}, was measured on another dev set: {own} says nothing"
    best = float(champion.tags["dev_bleu"])
    if float(tags["dev_bleu"]) >= best:
        return True, f"{own}, not below the {best:.2f} of version {champion.version}"
    return False, f"{own}, below the {best:.2f} of version {champion.version}"


def register_version(
    uri: str,
    run_id: str,
    name: str,
    model: TextModel,
    tags: Mapping[str, str],
    modified: bool,
    min_champion_bleu: float,
    experiment_id: str = "",
    differs_from: Callable[[Version], Iterable[DifferingField]] = lambda _: (),
    site_url: str = "",
) -> dict[str, Any]:
    """Log the model with the run and make it the next version of ``name``; returns what ``version.json`` holds.

    The version is created, with all its tags, after its model is stored. Unless ``modified``, the alias candidate moves
    to it, and champion if ``becomes_champion`` says so; each move adds a tag that says when and why. A repeated
    call, after one that was killed, finds its version and moves the aliases that it does not have yet.
    ``differs_from`` gives the fields in which the present champion differs from the new version, for its description,
    which links to the pages of ``repro site`` at ``site_url``.
    """
    before = versions(uri, name)
    version = _of_interrupted_attempt(uri, before, run_id, tags, model) or _repaired(uri, before, tags, model)
    champion = next((known for known in before if "champion" in known.aliases), None)
    if champion and version and champion.version == version.version:
        better, reason = True, _promotion_reason(champion)
    else:
        better, reason = becomes_champion(tags, champion, all(known is version for known in before), min_champion_bleu)
    decision = "a run with overrides moves no alias" if modified else f"{'' if better else 'not '}champion: {reason}"
    all_tags = {**tags, "modified": f"{modified}".lower(), "decision": decision}
    fields = list(differs_from(champion)) if champion else []

    def description(number: int, model_id: str) -> str:
        other = f"{name}/{champion.version}" if champion else ""
        pages = run_pages(experiment_id, run_id, model_id) if experiment_id else {}
        return version_description(f"{name}/{number}", all_tags, pages, other, fields, site_url)

    if version is None:
        model_id = log_model(uri, run_id, name, model, model_metrics(tags))
        # MLflow numbers the version, in general the next after the last one; a removed version keeps its number.
        expected = max((known.version for known in before), default=0) + 1
        version = create_version(
            uri, name, model_id, run_id, all_tags, description(expected, model_id), model_about(name, tags)
        )
        if version.version != expected:
            set_decision(uri, version, decision, description(version.version, model_id))
    elif version.run_id == run_id and version.tags.get("decision") != decision:
        # Another version became champion before this was repeated.
        logged = MODEL_ID.search(version.source)
        set_decision(uri, version, decision, description(version.version, logged[0] if logged else ""))
    moves = {} if modified else {"candidate": WHY_CANDIDATE} | ({"champion": reason} if better else {})
    for alias, why in moves.items():
        if alias not in version.aliases:
            set_alias(uri, version, alias, why)
    return {
        "name": name,
        "version": version.version,
        "aliases": list(moves),
        "uri": hide_password(uri, uri),
        "run_id": version.run_id,
        "decision": decision,
    }


def _promotion_reason(champion: Version) -> str:
    """Why the version became champion."""
    reasons = [move.why.partition(": ")[2] for move in champion.promotions if move.alias == "champion"]
    return reasons[-1] if reasons else "it has the alias already"


def _of_interrupted_attempt(
    uri: str, before: Iterable[Version], run_id: str, tags: Mapping[str, str], model: TextModel
) -> Version | None:
    """The version that an interrupted attempt of this run created, with its files stored again if they are damaged.

    One that was made from other inputs, or measured otherwise, does not count: they may have changed since.
    """
    identity = _identity(tags, (*MEASURED, "dev_digest"))
    version = next((each for each in before if each.run_id == run_id and identity.items() <= each.tags.items()), None)
    model_id = MODEL_ID.search(version.source) if version else None
    if version and model_id and stored_damage(uri, version):
        store_again(uri, model_id[0], model)
    return version


def _identity(tags: Mapping[str, str], ends: tuple[str, ...] = ()) -> dict[str, str]:
    """The keys and digests of what a version was made from, and the tags whose names have one of these ends."""
    chosen = [name for name in tags if name.startswith(("key.", "digest.")) or name.endswith(ends)]
    return {name: tags[name] for name in chosen}


def _repaired(uri: str, before: Iterable[Version], tags: Mapping[str, str], model: TextModel) -> Version | None:
    """The version of the same model whose stored files are missing or damaged, with its files stored again.

    So an alias that points to a damaged version is good again. None if there is no such version.
    """
    identity = _identity(tags)
    for version in before:
        model_id = MODEL_ID.search(version.source)
        if not (model_id and identity and identity.items() <= version.tags.items() and stored_damage(uri, version)):
            continue
        store_again(uri, model_id[0], model)
        if not stored_damage(uri, version):
            return version
    return None
