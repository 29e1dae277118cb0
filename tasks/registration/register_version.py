"""Creates a version in MLflow's registry; which aliases it gets is decided in ``tasks.registration.aliases``."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from infra.guards.address_secrets import public_address
from infra.processes.locks import file_lock
from infra.tracking.model_files import MODEL_ID, stored_damage
from infra.tracking.model_logging import TextModel, log_model, store_again
from infra.tracking.model_version import Version
from infra.tracking.registry import create_version, set_decision, versions
from model.metric_names import BLEU, CHRF, DEV_BLEU, PERPLEXITY, TEST_BLEU
from tasks.registration.aliases import CHAMPION, UNDECIDED, holder, move_aliases
from tasks.registration.differences import DifferingField
from tasks.registration.version_tags import model_description, model_metrics, model_tags, run_pages, version_description

MEASURED = (f".{BLEU}", f".{CHRF}", f".{PERPLEXITY}", DEV_BLEU, TEST_BLEU)
"""Ends of the tags by which a version is told from one that was measured otherwise."""


def register_version(
    uri: str,
    root: Path,
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

    The version is created after its model is stored. Unless ``modified``, aliases are then moved (``move_aliases``), by
    one process of ``root`` at a time; each move adds a tag that says when and why. A repeated call, after one that was
    killed, finds its version and moves the aliases that it should have. ``differs_from`` gives the fields in which the
    champion differs from the new version, for its description, which links to the pages of ``repro site`` at
    ``site_url``.
    """
    before = versions(uri, name)
    version = _of_interrupted_attempt(uri, before, run_id, tags, model) or _repaired(uri, before, tags, model)
    all_tags = {**tags, "modified": f"{modified}".lower(), "decision": UNDECIDED}
    if version is None:
        model_id = log_model(uri, run_id, name, model, model_metrics(tags))
        version = create_version(uri, name, model_id, run_id, all_tags, model_description(name, tags), model_tags(tags))
    champion = holder(before, CHAMPION)
    held = []
    decision = "a run with overrides moves no alias"
    if not modified:
        with file_lock(root / "locks" / "aliases", lambda _: None):
            made = move_aliases(uri, version, before, min_champion_bleu)
        champion = made.compared
        held = [*made.held]
        decision = made.text
    if version.run_id == run_id and version.tags.get("decision") != decision:
        logged = MODEL_ID.search(version.source)
        pages = run_pages(experiment_id, run_id, logged[0] if logged else "") if experiment_id else {}
        other, fields = (f"{name}/{champion.version}", list(differs_from(champion))) if champion else ("", [])
        label = f"{name}/{version.version}"
        all_tags = {**all_tags, "decision": decision}
        set_decision(uri, version, decision, version_description(label, all_tags, pages, other, fields, site_url))
    return {
        "name": name,
        "version": version.version,
        "aliases": held,
        "uri": public_address(uri),
        "run_id": version.run_id,
        "decision": decision,
    }


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
