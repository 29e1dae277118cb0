"""The files of a registered model version on this machine, downloaded where MLflow's artifact store is remote."""

import shutil
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

from infra.errors import BadConfiguration, NetworkFault
from infra.tracking.client import mlflow_client
from infra.tracking.model_version import Version

CACHE = Path.home() / ".cache" / "repro" / "models"
"""Downloaded models; a model never changes."""


def local_folder(uri: str, version: Version, cache: Path = CACHE) -> Path:
    """The folder with the model's ``weights/`` and ``vocabulary/``, downloaded into ``cache`` from a remote store."""
    client = mlflow_client(uri)
    if version.source.startswith("models:/m-"):
        address = client.get_logged_model(version.source.removeprefix("models:/")).artifact_location
    else:
        address = client.get_model_version_download_uri(version.name, f"{version.version}")
    if address.startswith(("file:", "/")):
        folder = Path(urllib.request.url2pathname(urllib.parse.urlsplit(address).path))
    else:
        folder = cache / urllib.parse.quote(address, safe="")
        if not folder.exists():
            _download(uri, address, folder)
    if not (folder / "artifacts" / "weights").is_dir():
        raise BadConfiguration(f"model {version.name}/{version.version} has no weights at {folder}: they were removed")
    return folder / "artifacts"


def _download(uri: str, address: str, folder: Path) -> None:
    from mlflow.artifacts import download_artifacts

    partial = folder.with_name(f"{uuid.uuid4().hex}.partial")
    partial.mkdir(parents=True)
    try:
        downloaded = Path(download_artifacts(artifact_uri=address, dst_path=str(partial), tracking_uri=uri))
        if not folder.exists():
            downloaded.rename(folder)
    except Exception as error:
        raise NetworkFault(f"could not download the model from {address}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
