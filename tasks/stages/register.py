"""Registers a trained model as the next version of the MLflow model that is named after its run.

    version.json (name, version, aliases, uri, run_id, decision)
    vocabulary/  (of the version: its source tokenizer normalises like the training text)

Inputs are weights, vocabulary, report and scores. ``mlflow.pyfunc.load_model`` loads the version anywhere.
``tasks.registration`` decides its tags, description and aliases.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from infra.site import Site
from infra.store.files import folder_damage
from infra.store.manifest import is_log
from infra.store.store import Artifact
from infra.tracking.mlflow_runs import OVERRIDES, SETTINGS, RunFile
from infra.tracking.model_files import PARTS, VOCABULARY, files_digest, local_address
from infra.tracking.model_logging import TextModel
from infra.tracking.model_version import DIGEST_TAG
from infra.tracking.registry import version_exists
from model.config import Decoding
from model.config.normalise import Normalise
from model.data.bpe import write_normalising
from model.data.word_splitting import WordSplitting
from model.decoding.translation import translator_params
from tasks.engine.stage import Facts, current_stage, progress, site, stage
from tasks.engine.stage_code import module_file, stage_code
from tasks.registration.aliases import dev_p_value
from tasks.registration.lineage import dev_decoding, lineage, training_text, version_lineage
from tasks.registration.model_card import SENTENCES, as_markdown, model_card
from tasks.registration.register_version import register_version
from tasks.registration.version_tags import version_tags

LIBRARIES = ("torch", "numpy", "pyarrow", "tokenizers", "safetensors", "sentencex")
"""Libraries that the package ``model`` needs to load a registered model."""
MIN_CHAMPION_BLEU = 1.0
"""A score that text in the same language but with another meaning reaches."""


def translator_model(weights: Path, vocabulary: Path, decoding: Decoding, text: Mapping[str, int | str]) -> TextModel:
    """The model for MLflow, with the present package ``model`` as its code; ``text`` is ``training_text``."""
    file = module_file("model.export.mlflow_model")
    assert file, "the package model has its pyfunc file"
    splitting = WordSplitting.load(vocabulary)
    return TextModel(
        code=file,
        package=file.parents[1],
        folders={"weights": weights, "vocabulary": vocabulary},
        options=translator_params(decoding),
        libraries=(*LIBRARIES, splitting.library) if splitting else LIBRARIES,
        example=("A dog runs.",),
        config=text,
    )


def _still_registered(made: Artifact, site: Site) -> bool:
    """Whether the site's registry has the version, and its files on this machine, if any, are undamaged."""
    try:
        version = json.loads((made.path() / "version.json").read_bytes())
        name = version["name"]
        number = version["version"]
        if not version_exists(site.registry, name, number, version["run_id"]):
            return False
        folder = local_address(site.registry, name, number)
    except (OSError, ValueError, KeyError):
        return False
    if folder is None:  # at a server or in a bucket: ``repro verify`` reads it
        return True
    stamps = made.store.root / "stamps" / f"model-{name}-{number}.json"
    return (folder / "artifacts").is_dir() and not folder_damage(folder, _model_files(made), stamps)


def _model_files(made: Artifact) -> dict[str, Mapping[str, Any]]:
    """Checksums of the files of the registered model, from the manifests of the artifacts that hold them."""
    registered = made.manifest
    if registered is None:
        return {}
    own = {f"artifacts/{name}": sums for name, sums in registered.files.items() if name.startswith(f"{VOCABULARY}/")}
    parts = {stage: part for part, stage in PARTS.items() if not (own and part == VOCABULARY)}
    for made_by, _, key in (name.partition("/") for name in registered.inputs):
        if made_by in parts and (manifest := made.store.find(made_by, key)):
            files = {name: sums for name, sums in manifest.files.items() if not is_log(name)}
            own |= {f"artifacts/{parts[made_by]}/{name}": sums for name, sums in files.items()}
    return own


@stage(version=2, still_valid=_still_registered)
def register(
    out: Path,
    run_name: str,
    weights: Artifact,
    vocabulary: Artifact,
    report: Artifact,
    scores: Mapping[str, Artifact],
    sets: Mapping[str, Artifact],
    dev: str,
    modified: bool,
    normalise: Normalise,
    min_champion_bleu: float = MIN_CHAMPION_BLEU,
) -> Facts:
    """Register the model with its scores and move its aliases; ``scores`` and ``sets`` are by set name.

    The version normalises every source by ``normalise``, like its training text.
    """
    record = current_stage().tracker
    run_id = record.resolve_run_id(current_stage().run_id)
    manifests = lineage(scores, [weights, vocabulary, *sets.values()])
    progress(0, 3, "model")
    text = training_text(weights)
    tags = version_tags(scores, dev, manifests) | {name: f"{value}" for name, value in text.items()}
    tags |= {name: value for name in (OVERRIDES, SETTINGS) if (value := record.parent_tags.get(name, ""))}
    for name, manifest in manifests.items():
        change = stage_code(f"tasks.stages.{manifest.stage}").change_since(manifest.made)
        if change.kinds:  # code or libraries
            tags[f"changed.{name}"] = f"{change}"
    own_vocabulary = out / VOCABULARY
    own_vocabulary.mkdir()
    write_normalising(vocabulary.path(), normalise, own_vocabulary)
    tags[f"{DIGEST_TAG}{VOCABULARY}"] = files_digest(own_vocabulary)
    tags["report"] = record.file_page(report.key, "report.html")
    model = translator_model(weights.path(), own_vocabulary, dev_decoding(manifests, dev), text)

    registered = register_version(
        record.uri,
        site().root,
        run_id,
        run_name,
        model,
        tags,
        modified,
        min_champion_bleu,
        partial(dev_p_value, scores[dev]),
        record.run_id,
    )
    progress(2, 3, "report")
    card = model_card(
        f"{run_name}/{registered['version']}",
        tags,
        version_lineage(weights.store.find, tags),
        lambda name: scores[name].path() / SENTENCES if name in scores else None,
    )
    record.log_files(run_id, lambda: [RunFile("model_card.md", as_markdown(card).encode())])
    (out / "version.json").write_text(json.dumps(registered, indent=1, ensure_ascii=False) + "\n", "utf-8")
    progress(3, 3, f"{run_name}/{registered['version']}")
    return {
        "name": run_name,
        "version": registered["version"],
        "aliases": ", ".join(registered["aliases"]),
        "decision": registered["decision"],
    }
