"""Registers a trained model as the next version of the MLflow model that is named after its run.

    version.json (name, version, aliases, uri, run_id, decision)

Inputs are weights, vocabulary, report and scores. ``mlflow.pyfunc.load_model`` loads the version anywhere. What it says
of itself and which alias it gets is decided in ``tasks.registration``.
"""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from infra.site import Site
from infra.store.local import Artifact
from infra.store.manifest import Manifest
from infra.tracking.model_files import PARTS, local_address
from infra.tracking.model_logging import TextModel
from infra.tracking.registry import version_exists
from model.config import Decoding
from model.config.pyfunc_params import translator_params
from tasks.engine.stage import Facts, progress, stage, stage_run_id, tracker
from tasks.engine.stage_code import stage_code
from tasks.registration.lineage import dev_decoding, lineage, training_text
from tasks.registration.promotion import register_version
from tasks.registration.version_tags import version_tags

LIBRARIES = ("torch", "numpy", "pyarrow", "tokenizers", "safetensors", "sentencex")
"""What the package ``model`` needs where a registered model is loaded."""


def translator_model(
    weights: Artifact, vocabulary: Artifact, decoding: Decoding, text: Mapping[str, int | str]
) -> TextModel:
    """The model for MLflow, with the present package ``model`` as its code; ``text`` is ``training_text``."""
    found = find_spec("model.export.mlflow_model")
    assert found, "the package model has its pyfunc file"
    assert found.origin
    return TextModel(
        code=Path(found.origin),
        package=Path(found.origin).parents[1],
        folders={"weights": weights.path(), "vocabulary": vocabulary.path()},
        options=translator_params(decoding),
        libraries=LIBRARIES,
        example=("A dog runs.",),
        config=text,
    )


def _still_registered(made: Artifact, site: Site) -> bool:
    """Whether the version is in the site's registry, and its files, where they are on this machine, are undamaged."""
    try:
        version = json.loads((made.path() / "version.json").read_text())
        name, number = version["name"], version["version"]
        if not version_exists(site.registry, name, number, version["run_id"]):
            return False
        folder = local_address(site.registry, name, number)
    except (OSError, ValueError, KeyError):
        return False
    if folder is None:  # at a server or in a bucket: ``repro verify`` reads it
        return True
    stamps = made.store.stamp_file("model", f"{name}-{number}")
    return (folder / "artifacts").is_dir() and not made.store.damage_of(folder, _model_files(made), stamps)


def _model_files(made: Artifact) -> dict[str, Mapping[str, Any]]:
    """Sums of the files of the registered model, from the manifests of the artifacts that it is a copy of."""
    registered = made.store.manifest(made.stage, made.key)
    parts = {stage: part for part, stage in PARTS.items()}
    found: dict[str, Mapping[str, Any]] = {}
    for made_by, _, key in (name.partition("/") for name in (registered.inputs if registered else ())):
        if made_by in parts and (manifest := made.store.manifest(made_by, key)):
            found |= {f"artifacts/{parts[made_by]}/{name}": sums for name, sums in manifest.files.items()}
    return found


def _code_changes(manifests: Mapping[str, Manifest]) -> dict[str, str]:
    """Tags ``changed.<stage>`` of stages whose artifact was made by other code or libraries than the present ones."""
    modules = {name: f"tasks.stages.{manifest.stage}" for name, manifest in manifests.items()}
    changes = {name: stage_code(modules[name]).change_since(manifest.made) for name, manifest in manifests.items()}
    return {f"changed.{name}": change for name, change in changes.items() if change}


@stage(version=1, retries=3, still_valid=_still_registered)
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
) -> Facts:
    """Register the model with its scores and move its aliases; ``scores`` and ``sets`` are by set name."""
    record = tracker()
    run_id = record.resolve_run_id(stage_run_id())
    progress(0, 3, "report")
    report_files = (path for path in sorted(report.path().iterdir()) if path.suffix in (".html", ".png"))
    record.log_artifacts(run_id, report_files, "report")
    manifests = lineage([weights, vocabulary, *scores.values(), *sets.values()])
    for name, pairs in sets.items():
        profile = {"pairs": pairs.facts.get("pairs", 0)}
        context = "dev" if name == dev else "test"
        record.log_input(run_id, context, name, pairs.content, f"prepare_sets/{pairs.key}", profile)
    progress(1, 3, "model")
    text = training_text(weights)
    tags = version_tags(scores, sets, dev, manifests) | {name: f"{value}" for name, value in text.items()}
    tags |= _code_changes(manifests)
    tags |= {f"adopted.{name}": manifest.adopted for name, manifest in manifests.items() if manifest.adopted}
    model = translator_model(weights, vocabulary, dev_decoding(manifests, dev), text)
    registered = register_version(record.uri, run_id, run_name, model, tags, modified, record.experiment_id)
    (out / "version.json").write_text(json.dumps(registered, indent=1, ensure_ascii=False) + "\n")
    progress(3, 3, f"{run_name}/{registered['version']}")
    return {
        "name": run_name,
        "version": registered["version"],
        "aliases": ", ".join(registered["aliases"]),
        "decision": registered["decision"],
    }
