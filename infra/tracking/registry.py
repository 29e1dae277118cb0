"""The model registry read and moved: versions with their scores, names that people type, aliases and why they moved.

A version says everything by its tags, so that a list costs two requests however long it is. Scores are tags of the
form ``<set>.<number>``; ``dev_set`` names the set that choices were made on. The tag ``promotion.<alias>`` has a line
for each time that the alias was moved to the version: when, by whom, why.
"""

import contextlib
import difflib
import getpass
import json
import re
import shutil
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from infra.errors import BadConfiguration, NetworkFault
from infra.servers import credentials
from infra.servers.sqlite_addresses import sqlite_file
from infra.tracking import registry_sqlite
from infra.tracking.client import mlflow_client

PREFERRED = ("champion", "candidate")
"""Which alias a bare name means, the first that is there; else the newest version."""
PROMOTION_TAG = "promotion."
NO_ALIAS = re.compile(r"latest|v\d+", re.IGNORECASE)
"""What MLflow itself takes for a version."""
Order = Literal["newest", "dev", "test"]
STANDING_SECONDS = 5.0
REFUSED = (401, 403)
"""Answers to a request whose credentials are missing or wrong."""
CACHE = Path.home() / ".cache" / "repro" / "models"
"""Where models of a remote store are kept; they never change."""


@dataclass(frozen=True)
class Promotion:
    """An alias came to stand on a version."""

    when: str
    """UTC, ISO 8601."""
    alias: str
    version: int
    why: str
    """``name: reason``, who moved it and why."""


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

    @property
    def test(self) -> str:
        """Name of the first set that no choice was made on; empty where there is none."""
        return self.tags.get("test_set", "") or next((name for name in self.bleu if name != self.dev), "")

    @property
    def digests(self) -> Mapping[str, str]:
        """Digests of the text and of the vocabulary that it was made from, as ``clean`` and ``learn_bpe``, and of the
        sets it was measured on, as ``prepare_sets.<set>``."""
        mark = "digest."
        return {tag.removeprefix(mark): value for tag, value in self.tags.items() if tag.startswith(mark)}

    @property
    def promotions(self) -> list[Promotion]:
        """When each alias came to stand here, the oldest first."""
        found = []
        for tag, value in self.tags.items():
            if tag.startswith(PROMOTION_TAG):
                lines = [line.partition(" ") for line in value.splitlines()]
                found += [Promotion(when, tag.removeprefix(PROMOTION_TAG), self.version, why) for when, _, why in lines]
        return sorted(found, key=lambda move: move.when)

    def line(self) -> str:
        """``multi30k-ende/3  2026-11-21 12:00  champion, candidate  val (dev) 34.12  test 33.80  13a…``."""
        scores = [f"{name}{' (dev)' * (name == self.dev)} {bleu:.2f}" for name, bleu in self.bleu.items()]
        changed = "with overrides" if self.tags.get("modified") == "true" else ""
        created = f"{self.created.astimezone():%Y-%m-%d %H:%M}"
        made_from = [
            f"{word} {self.digests[name][:8]}"
            for word, name in (("data", "clean"), ("vocabulary", "learn_bpe"))
            if name in self.digests
        ]
        who = [f"{self.name}/{self.version}", created, ", ".join(self.aliases)]
        parts = [*who, *scores, self.protocol, *made_from, changed]
        return "  ".join(part for part in parts if part)


def versions(uri: str, name: str = "") -> list[Version]:
    """All model versions, or those of one model: by name, the newest first. None where there is no store yet."""
    file = sqlite_file(uri)
    if (file and not file.exists()) or "'" in name:
        return []
    if file:
        with contextlib.suppress(sqlite3.Error):  # of another MLflow, or not made yet: MLflow itself is asked
            return _sorted(_version(row, row.aliases) for row in registry_sqlite.read_versions(file, name))
    return _sorted(_versions_from_server(uri, name))


def ordered(found: Iterable[Version], by: Order) -> list[Version]:
    """Newest first, or by BLEU on the dev or the first test set, the best first; what has no score comes last."""
    if by == "newest":
        return sorted(found, key=lambda version: version.created, reverse=True)

    def score(version: Version) -> float:
        return version.bleu.get(version.dev if by == "dev" else version.test, float("-inf"))

    return sorted(found, key=score, reverse=True)


def history(of_model: Iterable[Version]) -> list[Promotion]:
    """Every move of every alias of one model, the newest first."""
    return sorted(
        (move for version in of_model for move in version.promotions), key=lambda move: move.when, reverse=True
    )


def _versions_from_server(uri: str, name: str) -> Iterable[Version]:
    store = mlflow_client(uri)
    wanted = f"name = '{name}'" if name else None
    models = _all(lambda token: store.search_registered_models(filter_string=wanted, page_token=token))
    aliases: dict[tuple[str, int], list[str]] = {}
    for model in models:
        for alias, version in model.aliases.items():
            aliases.setdefault((model.name, int(version)), []).append(alias)
    found = _all(lambda token: store.search_model_versions(filter_string=wanted, page_token=token))
    return (_version(entity, aliases.get((entity.name, int(entity.version)), ())) for entity in found)


def _sorted(found: Iterable[Version]) -> list[Version]:
    return sorted(found, key=lambda version: (version.name, -version.version))


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
    store = mlflow_client(uri)
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
    store = mlflow_client(uri)
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
    """Move ``alias`` to ``version``, whose tag ``promotion.<alias>`` gets a line: when, by whom, why; gives that line.

    Raises BadConfiguration for what is no alias.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", alias) or NO_ALIAS.fullmatch(alias):
        allowed = "letters, digits, - and _, but neither latest nor v1, v2, …"
        raise BadConfiguration(f"alias is {alias!r}, allowed are {allowed}")
    store, number = mlflow_client(uri), f"{version.version}"
    said = f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {_user()}: {' '.join(reason.split())}"
    try:
        # What it says now: between the caller's look and this moment the alias may have come and gone.
        before = store.get_model_version(version.name, number).tags.get(f"{PROMOTION_TAG}{alias}", "")
        # The reason first: an alias without one could not be explained any more.
        store.set_model_version_tag(
            version.name, number, f"{PROMOTION_TAG}{alias}", "\n".join(filter(None, [before, said]))
        )
        store.set_registered_model_alias(version.name, alias, number)
    except Exception as error:
        raise NetworkFault(
            f"MLflow at {uri} does not give {version.name}/{number} the alias {alias}: {error}"
        ) from error
    return said


def source_run(uri: str, version: Version) -> Mapping[str, str]:
    """Where the version comes from: ``run`` and ``report`` as addresses to open, ``artifacts``, and the parameters of
    the whole run as ``params.<name>``. Empty where the run is gone."""
    store = mlflow_client(uri)
    try:
        run = store.get_run(version.run_id)
        parent = run.data.tags.get("mlflow.parentRunId", "")
        params = store.get_run(parent).data.params if parent else run.data.params
    except Exception:
        return {}
    server = uri.rstrip("/") if uri.startswith(("http://", "https://")) else ""
    page = f"{server}/#/experiments/{run.info.experiment_id}/runs/{version.run_id}"
    artifacts = run.info.artifact_uri
    told = {"run": page, "report": f"{page}/artifacts/report/report.html", "artifacts": artifacts, "parent": parent}
    return {**told, **{f"params.{name}": value for name, value in sorted(params.items())}}


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's number without a name
        return "somebody"


def version_exists(uri: str, name: str, version: int, run_id: str) -> bool:
    """Whether that version, made by that run, is at ``uri``. Does not import MLflow where it can be asked without.

    A server that does not answer cannot say that the version is gone: it counts as there.
    """
    if file := sqlite_file(uri):
        return file.exists() and registry_sqlite.version_exists(file, name, version, run_id)
    if uri.startswith(("http://", "https://")):
        return _exists_at_server(uri, name, version, run_id)
    return any(found.version == version and found.run_id == run_id for found in versions(uri, name))


def _exists_at_server(uri: str, name: str, version: int, run_id: str) -> bool:
    """Ask over plain HTTP, which spares the seconds of MLflow's import; where that is refused, ask through the client,
    which also knows credentials in files, plug-ins and certificates."""
    words = urllib.parse.urlencode({"name": name, "version": version})
    question = f"{uri.rstrip('/')}/api/2.0/mlflow/model-versions/get?{words}"
    try:
        request = urllib.request.Request(question, headers=credentials.mlflow_header())
        with urllib.request.urlopen(request, timeout=STANDING_SECONDS) as answer:
            return bool(json.load(answer)["model_version"].get("run_id") == run_id)
    except urllib.error.HTTPError as error:
        return error.code != 404 and (error.code not in REFUSED or _stands_for_client(uri, name, version, run_id))
    except (OSError, ValueError, KeyError):
        return True


def _stands_for_client(uri: str, name: str, version: int, run_id: str) -> bool:
    store = mlflow_client(uri)
    from mlflow.exceptions import MlflowException

    try:
        return bool(store.get_model_version(name, f"{version}").run_id == run_id)
    except MlflowException as error:
        return bool(error.error_code != "RESOURCE_DOES_NOT_EXIST")


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
