"""Creates a version in MLflow's registry; ``tasks.registration.aliases`` decides its aliases."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from infra.guards.address_secrets import public_address
from infra.tracking.model_files import MODEL_ID, stored_damage
from infra.tracking.model_logging import TextModel, log_model, store_again
from infra.tracking.model_version import Version
from infra.tracking.registry import create_version, set_decision, versions
from model.metric_names import BLEU, CHRF, DEV_BLEU, PERPLEXITY, TEST_BLEU
from tasks.registration.aliases import CHAMPION, UNDECIDED, SentenceTest, alias_lock, holder, move_aliases
from tasks.registration.version_tags import model_description, model_metrics, version_description

MEASURED = (f".{BLEU}", f".{CHRF}", f".{PERPLEXITY}", DEV_BLEU, TEST_BLEU, "dev_digest")
"""Ends of the tags that hold measurements."""


def register_version(
    uri: str,
    root: Path,
    run_id: str,
    name: str,
    model: TextModel,
    tags: Mapping[str, str],
    modified: bool,
    min_champion_bleu: float,
    test: SentenceTest,
    source_run: str = "",
) -> dict[str, Any]:
    """Log the model with the run and make it the next version of ``name``; returns the content of ``version.json``.

    ``run_id`` is the run of the stage. ``source_run`` is the run of the pipeline, which the version names as its
    source; "" for ``run_id``. Unless ``modified``, aliases are moved (``move_aliases``, ``test``), by one process of
    ``root`` at a time. A call that repeats a killed one finds its version and moves the aliases that are missing.
    """
    before = versions(uri, name)
    version = _known_version(uri, before, run_id, tags, model)
    all_tags = {**tags, "modified": f"{modified}".lower(), "decision": UNDECIDED, "stage_run": run_id}
    if version is None:
        model_id = log_model(uri, run_id, name, model, model_metrics(tags))
        about = model_description(name, tags)
        version = create_version(uri, name, model_id, source_run or run_id, all_tags, about)
    champion = holder(before, CHAMPION)
    held: list[str] = []
    decision = "a run with overrides moves no alias"
    if not modified:
        with alias_lock(root):
            held, decision, champion = move_aliases(uri, version, before, min_champion_bleu, test)
    if version.stage_run == run_id and version.tags.get("decision") != decision:
        labels = [f"{name}/{each.version}" for each in (version, champion) if each]
        all_tags = {**all_tags, "decision": decision}
        set_decision(uri, version, decision, version_description(labels, all_tags))
    return {
        "name": name,
        "version": version.version,
        "aliases": held,
        "uri": public_address(uri),
        "run_id": version.run_id,
        "decision": decision,
    }


def _known_version(
    uri: str, before: Iterable[Version], run_id: str, tags: Mapping[str, str], model: TextModel
) -> Version | None:
    """The version that need not be created; its files are stored again if they are missing or damaged.

    It is the version that an interrupted attempt of this run created, or a version with damaged files of the same model
    from the same inputs, whatever its scores. Once repaired, an alias that points to it works again.
    """
    made_from = {name: value for name, value in tags.items() if name.startswith(("key.", "digest."))}
    measured = {name: value for name, value in tags.items() if name.endswith(MEASURED)}
    for version in sorted(before, key=lambda version: version.stage_run != run_id):
        has_model = made_from.items() <= version.tags.items()
        is_own = version.stage_run == run_id and has_model and measured.items() <= version.tags.items()
        if not (is_own or (has_model and made_from)):
            continue
        model_id = MODEL_ID.search(version.source)
        is_damaged = model_id and stored_damage(uri, version)
        if model_id and is_damaged:
            store_again(uri, model_id[0], model)
        if is_own or (is_damaged and not stored_damage(uri, version)):
            return version
    return None
