"""Finds, downloads and verifies the files of a registered model version; downloads only from a remote artifact store.

A version's tags hold the content digests of its weights and its vocabulary.
"""

import os
import re
import shutil
import tempfile
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

from infra.errors import BadConfiguration, BadData, NetworkFault
from infra.guards.address_secrets import public_address
from infra.guards.path_names import file_name
from infra.servers import mlflow_sqlite
from infra.servers.sqlite_addresses import sqlite_file
from infra.store.files import sha256_of, user_cache
from infra.store.manifest import MANIFEST, content_digest
from infra.tracking.client import mlflow_client, refusals
from infra.tracking.model_version import Version

PARTS = {"weights": "average", "vocabulary": "learn_bpe"}
"""Maps each folder of a model to the stage that made its content."""
VOCABULARY = "vocabulary"
"""The folder that ``register`` writes itself, and its digest's tag. Earlier versions have learn_bpe's digest."""
MODEL_ID = re.compile(r"\bm-[0-9a-f]{32}\b")


def local_folder(uri: str, version: Version) -> Path:
    """Return the folder with the model's ``weights/`` and ``vocabulary/``; a remote store's is in the user's cache.

    Raises BadConfiguration if the files were removed, and BadData if they differ from the registered files.
    """
    address = _address(uri, version)
    folder = _on_this_machine(address)
    is_checked = False
    if folder is None:
        folder = user_cache("models") / file_name(address)
        is_checked = folder.exists() and not _damage(folder, version)
        if not is_checked:
            shutil.rmtree(folder, ignore_errors=True)
            _download(uri, address, folder)
    label = f"model {version.label}"
    if not (folder / "artifacts" / "weights").is_dir():
        raise BadConfiguration(f"{label} has no weights at {folder}: they were removed; {_advice(version)}")
    if not is_checked and (damage := _damage(folder, version)):
        raise BadData(f"{label} at {folder}: {damage}; {_advice(version)}")
    return folder / "artifacts"


def local_address(uri: str, name: str, version: int) -> Path | None:
    """Return the folder of a version's model from a SQLite file, without importing MLflow; None if it is elsewhere."""
    file = sqlite_file(uri)
    address = mlflow_sqlite.model_address(file, name, version) if file else None
    return _on_this_machine(address or "")


def stored_folder(uri: str, version: Version) -> Path | None:
    """Return the folder of a version's model in MLflow's artifact store; None if it is elsewhere or removed."""
    folder = _on_this_machine(_address(uri, version))
    return folder if folder and folder.is_dir() else None


def stored_damage(uri: str, version: Version) -> str:
    """Hash a version's files in MLflow's artifact store; return the damage, or "" if they are as registered."""
    address = _address(uri, version)
    if folder := _on_this_machine(address):
        return _damage(folder, version)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            _download(uri, address, Path(scratch) / "model")
        except NetworkFault as fault:  # MLflow says the same of a removed file and of a store that is away
            return f"{fault}"
        return _damage(Path(scratch) / "model", version)


def files_digest(folder: Path) -> str:
    """Return the content digest of an artifact with the files of this folder."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    return content_digest({name: {"sha256": sha256_of(folder / name)} for name in names if name != MANIFEST})


def _advice(version: Version) -> str:
    return f"to store them again: repro run {version.name} --force register"


def _damage(folder: Path, version: Version) -> str:
    for part, stage in PARTS.items():
        expected = version.digests.get(part) or version.digests.get(stage)
        if expected and files_digest(folder / "artifacts" / part) != expected:
            return f"the files of its {part} differ from those that were registered"
    return ""


def _address(uri: str, version: Version) -> str:
    file = sqlite_file(uri)
    if file and (found := mlflow_sqlite.model_address(file, version.name, version.version)):
        return found  # without MLflow's client, which takes seconds to import and locks the database
    client = mlflow_client(uri)
    if version.source.startswith("models:/m-"):
        return str(client.get_logged_model(version.source.removeprefix("models:/")).artifact_location)
    return str(client.get_model_version_download_uri(version.name, f"{version.version}"))


def _on_this_machine(address: str) -> Path | None:
    if not address.startswith(("file:", "/")):
        return None
    return Path(urllib.request.url2pathname(urllib.parse.urlsplit(address).path))


def _download(uri: str, address: str, folder: Path) -> None:
    from mlflow.artifacts import download_artifacts
    from mlflow.store.artifact.host_policy import host_addressed_uri_targets
    from mlflow.store.artifact.runs_artifact_repo import RunsArtifactRepository
    from mlflow.utils.credentials import read_mlflow_creds

    if RunsArtifactRepository.is_runs_uri(address):
        with refusals(uri, f"does not give the model at {address}"):
            address = RunsArtifactRepository.get_underlying_uri(address, uri)
    if address.startswith(("http:", "https:", "mlflow-artifacts:")) and (
        read_mlflow_creds().password or os.environ.get("MLFLOW_TRACKING_TOKEN")
    ):
        hosts = host_addressed_uri_targets(address)
        if hosts and not hosts & (host_addressed_uri_targets(uri) or set()):
            why = "which would get the password of the MLflow server; allowed is that server"
            raise BadConfiguration(f"the model is at {public_address(address)}, {why}")
    partial = folder.with_name(f"{uuid.uuid4().hex}.partial")
    partial.mkdir(parents=True)
    try:
        with refusals(uri, f"does not give the model at {address}"):
            downloaded = Path(download_artifacts(artifact_uri=address, dst_path=str(partial), tracking_uri=uri))
        if not folder.exists():
            downloaded.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
