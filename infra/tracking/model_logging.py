"""Logs a model with its code, folders and signature to a run, so that MLflow can load it anywhere.

MLflow's own ``log_model`` keeps the server's address in global state; this module uses the client with explicit ids.
MLflow executes the model's code file once while saving, so this process imports that file's imports.
"""

import hashlib
import importlib
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from infra.store.files import link_or_copy
from infra.tracking.client import fail_pending_models, mlflow_client, refusals

NAME_DIGITS = 12
REFUSAL = "refuses the model"


@dataclass(frozen=True)
class TextModel:
    """A model that maps lines of text to lines of text.

    ``code``: the file that calls ``set_model``. ``package``: the folder with this file and all its imports.
    ``folders``: the model's folders by the names that its code uses. ``options``: params of ``predict`` with their
    defaults. ``libraries``: required packages. ``config``: MLflow's ``model_config``.
    """

    code: Path
    package: Path
    folders: Mapping[str, Path]
    options: Mapping[str, bool | int | float | str]
    libraries: Sequence[str]
    example: Sequence[str]
    config: Mapping[str, int | str] = field(default_factory=dict)


def log_model(uri: str, run_id: str, name: str, model: TextModel, metrics: Mapping[str, float]) -> str:
    """Log ``model`` and its ``metrics`` to the run; return the model's id.

    Raises NetworkFault if MLflow refuses. This call marks an incompletely stored model as FAILED; if the call is
    killed, the next call for the same run does.
    """
    store = mlflow_client(uri)
    with tempfile.TemporaryDirectory() as scratch:
        with refusals(uri, REFUSAL):
            experiment = store.get_run(run_id).info.experiment_id
            fail_pending_models(store, experiment, run_id)
            made = store.create_logged_model(experiment, name=name, source_run_id=run_id)
        status = "FAILED"
        try:
            _save(Path(scratch), run_id, made, model)
            with refusals(uri, REFUSAL):
                store.log_model_artifacts(made.model_id, f"{scratch}/model")
                _attach(store, run_id, made.model_id, metrics)
            status = "READY"
        finally:
            with refusals(uri, REFUSAL):
                store.finalize_logged_model(made.model_id, status)
    return str(made.model_id)


def store_again(uri: str, model_id: str, model: TextModel) -> None:
    """Replace missing or damaged stored files of a logged model. Raises NetworkFault."""
    store = mlflow_client(uri)
    with tempfile.TemporaryDirectory() as scratch, refusals(uri, REFUSAL):
        made = store.get_logged_model(model_id)
        _save(Path(scratch), made.source_run_id, made, model)
        store.log_model_artifacts(model_id, f"{scratch}/model")


def _save(scratch: Path, run_id: str, made: Any, model: TextModel) -> None:
    """Write the model's folder to ``scratch/model``."""
    from mlflow.models import Model, ModelSignature
    from mlflow.pyfunc import save_model
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    folders = {}
    for name, folder in model.folders.items():
        # MLflow uses the folder's own name, which here is a key. Hard links avoid a copy of large files.
        shutil.copytree(folder, scratch / "in" / name, copy_function=link_or_copy)
        folders[name] = str(scratch / "in" / name)
    code = copy_under_own_name(model, scratch / "in")
    package = scratch / "in" / code.relative_to(scratch / "in").parts[0]
    kinds = {bool: DataType.boolean, int: DataType.long, float: DataType.double, str: DataType.string}
    options = [ParamSpec(name, kinds[type(value)], value) for name, value in model.options.items()]
    text = Schema([ColSpec(DataType.string)])
    # MLflow executes the code file while it saves. It warns about the missing type hint on predict (a hint would drop
    # the params) and resets the warning filters.
    with warnings.catch_warnings(record=True), _importable(package):
        save_model(
            path=str(scratch / "model"),
            mlflow_model=Model(
                artifact_path=made.artifact_location, run_id=run_id, model_uuid=made.model_id, model_id=made.model_id
            ),
            python_model=str(code),
            code_paths=[str(package)],
            artifacts=folders,
            signature=ModelSignature(text, text, ParamSchema(options)),
            input_example=(list(model.example), dict(model.options)),
            # Without a local build suffix, as in 2.11.0+cpu.
            pip_requirements=[f"{library}=={installed(library).partition('+')[0]}" for library in model.libraries],
            model_config=dict(model.config),
        )


def copy_under_own_name(model: TextModel, folder: Path) -> Path:
    """Copy the package into ``folder`` under a unique name, and return the code file in the copy.

    So one process can import several versions with their code, and a caller's module with the package's former name.
    Imports within the package must be relative. MLflow executes the code file by its path, so its imports are changed.
    """
    files = sorted(path for path in model.package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    name = model.package.name
    digest = hashlib.sha256(
        b"".join(f"{file.relative_to(model.package)}".encode() + file.read_bytes() for file in files)
    )
    own = f"{name}_{digest.hexdigest()[:NAME_DIGITS]}"
    shutil.copytree(model.package, folder / own, ignore=shutil.ignore_patterns("__pycache__"))
    code = folder / own / model.code.relative_to(model.package)
    imports = re.compile(rf"^(\s*(?:from|import)\s+){re.escape(name)}(?=[.\s])", re.MULTILINE)
    code.write_text(imports.sub(rf"\g<1>{own}", code.read_text()))
    return code


@contextmanager
def _importable(package: Path) -> Iterator[None]:
    """Make the copied package importable, and unload its modules afterwards, because their files will be removed."""
    sys.path.insert(0, f"{package.parent}")
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(f"{package.parent}")
        for name in [module for module in sys.modules if module.partition(".")[0] == package.name]:
            del sys.modules[name]


def _attach(store: Any, run_id: str, model_id: str, metrics: Mapping[str, float]) -> None:
    """Link the model as an output of the run and of its parent, and log its metrics."""
    from mlflow.entities import LoggedModelOutput, Metric

    run = store.get_run(run_id)
    now = run.info.start_time
    for producer in filter(None, (run_id, run.data.tags.get("mlflow.parentRunId"))):
        store.log_outputs(producer, [LoggedModelOutput(model_id, step=0)])
    store.log_batch(
        run_id, [Metric(name, value, now, 0, model_id=model_id, run_id=run_id) for name, value in metrics.items()]
    )
