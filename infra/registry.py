"""The model registry read and moved: versions with their scores, names that people type, aliases and why they moved.

A version says everything by its tags, so that a list costs two requests however long it is. Scores are tags of the
form ``<set>.<number>``; ``dev_set`` names the set that choices were made on.
"""

import contextlib
import difflib
import json
import shutil
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.faults import BadConfiguration, NetworkFault
from infra.mlflow_store import client, sqlite_file

PREFERRED = ("champion", "candidate")
"""Which alias a bare name means, the first that is there; else the newest version."""
STANDING_SECONDS = 5.0
CACHE = Path.home() / ".cache" / "repro" / "models"
"""Where models of a remote store are kept; they never change."""


@dataclass(frozen=True)
class Version:
    """A model version: who it is, its aliases, and its tags."""

    name: str
    version: int
    created: datetime
    aliases: tuple[str, ...]
    tags: Mapping[str, str]
    run_id: str
    source: str

    @property
    def dev(self) -> str:
        """Name of the set that choices were made on; empty for a version that this project did not register."""
        return self.tags.get("dev_set", "")

    @property
    def protocol(self) -> str:
        """sacreBLEU's signature of the dev score."""
        return self.tags.get("dev_signature", "")

    @property
    def bleu(self) -> Mapping[str, float]:
        """BLEU (13a, cased) by set, the dev set first."""
        scores = {key.removesuffix(".bleu"): float(value) for key, value in self.tags.items() if key.endswith(".bleu")}
        return dict(sorted(scores.items(), key=lambda score: (score[0] != self.dev, score[0])))

    def line(self) -> str:
        """``multi30k-ende/3  2026-11-21 12:00  champion, candidate  val (dev) 34.12  test 33.80  13a…``."""
        scores = [f"{name}{' (dev)' * (name == self.dev)} {bleu:.2f}" for name, bleu in self.bleu.items()]
        changed = "with overrides" if self.tags.get("modified") == "true" else ""
        created = f"{self.created.astimezone():%Y-%m-%d %H:%M}"
        parts = [f"{self.name}/{self.version}", created, ", ".join(self.aliases), *scores, self.protocol, changed]
        return "  ".join(part for part in parts if part)


def versions(uri: str, name: str = "") -> list[Version]:
    """All model versions, or those of one model: by name, the newest first. None where there is no store yet."""
    file = sqlite_file(uri)
    if (file and not file.exists()) or "'" in name:
        return []
    store = client(uri)
    wanted = f"name = '{name}'" if name else None
    models = _all(lambda token: store.search_registered_models(filter_string=wanted, page_token=token))
    aliases: dict[tuple[str, int], list[str]] = {}
    for model in models:
        for alias, version in model.aliases.items():
            aliases.setdefault((model.name, int(version)), []).append(alias)
    found = _all(lambda token: store.search_model_versions(filter_string=wanted, page_token=token))
    made = [_version(entity, aliases.get((entity.name, int(entity.version)), ())) for entity in found]
    return sorted(made, key=lambda version: (version.name, -version.version))


def resolve(uri: str, words: str) -> Version:
    """The version that ``name@alias``, ``name/3`` or ``name`` means; raises BadConfiguration naming the neighbours."""
    name, by_alias, alias = words.partition("@")
    name, by_number, number = name.partition("/") if not by_alias else (name, "", "")
    of_model = versions(uri, name) if name else []
    if not of_model:
        known = sorted({version.name for version in versions(uri)})
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise BadConfiguration(f"no model {name!r} is registered, there is: {', '.join(known) or 'none yet'}{hint}")
    if by_alias:
        if chosen := next((version for version in of_model if alias in version.aliases), None):
            return chosen
        known = [f"{other} (version {version.version})" for version in of_model for other in version.aliases]
        raise BadConfiguration(f"model {name!r} has no alias {alias!r}, it has: {', '.join(known) or 'none'}")
    if by_number:
        if chosen := next((version for version in of_model if f"{version.version}" == number), None):
            return chosen
        known = [f"{version.version}" for version in reversed(of_model)]
        raise BadConfiguration(f"model {name!r} has no version {number!r}, it has: {', '.join(known)}")
    preferred = (version for alias in PREFERRED for version in of_model if alias in version.aliases)
    return next(preferred, of_model[0])


def local_folder(uri: str, version: Version, cache: Path = CACHE) -> Path:
    """The folder with the model's ``weights/`` and ``vocabulary/``, fetched into ``cache`` if the store is remote."""
    store = client(uri)
    if version.source.startswith("models:/m-"):
        place = store.get_logged_model(version.source.removeprefix("models:/")).artifact_location
    else:
        place = store.get_model_version_download_uri(version.name, f"{version.version}")
    if place.startswith(("file:", "/")):
        folder = Path(urllib.request.url2pathname(urllib.parse.urlsplit(place).path))
    else:
        folder = cache / urllib.parse.quote(place, safe="")
        if not folder.exists():
            _fetch(uri, place, folder)
    if not (folder / "artifacts" / "weights").is_dir():
        raise BadConfiguration(f"model {version.name}/{version.version} has no weights at {folder}: they were removed")
    return folder / "artifacts"


def create_version(
    uri: str, name: str, model_id: str, run_id: str, tags: Mapping[str, str], description: str
) -> Version:
    """Make the next version of the model ``name`` from a logged model. Raises NetworkFault where the store does not."""
    store = client(uri)
    try:
        with contextlib.suppress(Exception):  # there already; if it is anything else, the next call says so
            store.create_registered_model(name)
        model = store.get_logged_model(model_id)
        # A server knows its models by id; without one MLflow would look for the id at the address of its global state.
        served = uri.startswith(("http://", "https://"))
        source = f"models:/{model_id}" if served else model.artifact_location
        made = store.create_model_version(
            name, source, run_id, tags=dict(tags), description=description, model_id=model_id
        )
        # The model's own page names its versions by this tag.
        named = {"mlflow.modelVersions": json.dumps([{"name": name, "version": int(made.version)}])}
        store.set_logged_model_tags(model_id, named)
    except Exception as error:
        raise NetworkFault(f"MLflow at {uri} does not register {name}: {error}") from error
    return _version(made, ())


def set_alias(uri: str, version: Version, alias: str, reason: str) -> str:
    """Move ``alias`` to ``version``, whose tag ``promotion.<alias>`` says when and why; gives that tag's text."""
    store, number = client(uri), f"{version.version}"
    said = f"{datetime.now(UTC).isoformat(timespec='seconds')} {reason}"
    try:
        # The reason first: an alias without one could not be explained any more.
        store.set_model_version_tag(version.name, number, f"promotion.{alias}", said)
        store.set_registered_model_alias(version.name, alias, number)
    except Exception as error:
        raise NetworkFault(
            f"MLflow at {uri} does not give {version.name}/{number} the alias {alias}: {error}"
        ) from error
    return said


def stands(uri: str, name: str, version: int, run_id: str) -> bool:
    """Whether that version, made by that run, is at ``uri``. Does not import MLflow where it can be asked without.

    A server that does not answer cannot say that the version is gone: it counts as there.
    """
    if file := sqlite_file(uri):
        return _stands_in_sqlite(file, name, version, run_id)
    if uri.startswith(("http://", "https://")):
        return _stands_at_server(uri, name, version, run_id)
    return any(found.version == version and found.run_id == run_id for found in versions(uri, name))


def _stands_in_sqlite(file: Path, name: str, version: int, run_id: str) -> bool:
    if not file.exists():
        return False
    question = "SELECT current_stage FROM model_versions WHERE name = ? AND version = ? AND run_id = ?"
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=60)) as connection:
            found = connection.execute(question, (name, version, run_id)).fetchone()
    except sqlite3.DatabaseError:
        return False
    return found is not None and found[0] != "Deleted_Internal"


def _stands_at_server(uri: str, name: str, version: int, run_id: str) -> bool:
    words = urllib.parse.urlencode({"name": name, "version": version})
    question = f"{uri.rstrip('/')}/api/2.0/mlflow/model-versions/get?{words}"
    try:
        with urllib.request.urlopen(question, timeout=STANDING_SECONDS) as answer:
            return bool(json.load(answer)["model_version"].get("run_id") == run_id)
    except urllib.error.HTTPError as error:
        return error.code != 404
    except (OSError, ValueError, KeyError):
        return True


def _fetch(uri: str, place: str, folder: Path) -> None:
    from mlflow.artifacts import download_artifacts

    partial = folder.with_name(f"{uuid.uuid4().hex}.partial")
    partial.mkdir(parents=True)
    try:
        fetched = Path(download_artifacts(artifact_uri=place, dst_path=str(partial), tracking_uri=uri))
        if not folder.exists():
            fetched.rename(folder)
    except Exception as error:
        raise NetworkFault(f"could not fetch the model from {place}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _version(entity: Any, aliases: Iterable[str]) -> Version:
    return Version(
        name=entity.name,
        version=int(entity.version),
        created=datetime.fromtimestamp(entity.creation_timestamp / 1000, UTC),
        aliases=tuple(sorted(aliases, key=lambda alias: (*PREFERRED, alias).index(alias))),
        tags=dict(entity.tags),
        run_id=entity.run_id or "",
        source=entity.source or "",
    )


def _all(page: Callable[[str | None], Any]) -> list[Any]:
    """Every entry of a paged answer."""
    found: list[Any] = []
    token: str | None = None
    while True:
        part = page(token)
        found += part
        token = part.token
        if not token:
            return found
