"""Lists, resolves and registers versions in MLflow's model registry, and moves aliases.

A list of any length costs two paged requests, because a version's tags hold everything about it. From a SQLite file it
costs one query without importing MLflow.
"""

import difflib
import json
import logging
import re
import urllib.error
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from infra.errors import BadConfiguration
from infra.guards.address_secrets import public_address
from infra.servers import mlflow_sqlite
from infra.servers.sqlite_addresses import sqlite_file
from infra.tracking.client import all_pages, get_json, mlflow_client, mlflow_errors, refusals
from infra.tracking.mlflow_runs import MAX_TAG_LENGTH, PARENT
from infra.tracking.model_files import MODEL_ID
from infra.tracking.model_version import (
    DETAILS,
    GROUPED_TAGS,
    PREFERRED,
    PROMOTION_TAG,
    Version,
    grouped_tags,
    history,
    make_version,
    stored_tags,
)
from infra.tracking.provenance import user

log = logging.getLogger(__name__)

RESERVED_ALIAS = re.compile(r"latest|v\d+", re.IGNORECASE)
"""Names that MLflow interprets as versions."""


def versions(uri: str, name: str = "") -> list[Version]:
    """Return all versions, or one model's: by name, the newest first. Empty if there is no store yet."""
    file = sqlite_file(uri)
    if (file and not file.exists()) or "'" in name:
        return []
    rows = mlflow_sqlite.version_rows(file, name) if file else None
    if rows is None:
        with refusals(uri, "does not list its versions"):
            found = _versions_from_client(uri, name)
    else:
        found = [
            make_version(model, number, created, run_id, source, json.loads(tags), json.loads(aliases))
            for model, number, created, run_id, source, tags, aliases in rows
        ]
    return sorted(found, key=lambda version: (version.name, -version.version))


def _versions_from_client(uri: str, name: str) -> list[Version]:
    client = mlflow_client(uri)
    which = {"filter_string": f"name = '{name}'" if name else None}
    aliases: dict[tuple[str, int], list[str]] = {}
    for model in all_pages(client.search_registered_models, **which):
        for alias, version in model.aliases.items():
            aliases.setdefault((model.name, int(version)), []).append(alias)
    found = all_pages(client.search_model_versions, **which)
    return [_to_version(entity, *aliases.get((entity.name, int(entity.version)), ())) for entity in found]


def _to_version(entity: Any, *aliases: str) -> Version:
    created = entity.creation_timestamp
    return make_version(entity.name, entity.version, created, entity.run_id, entity.source, entity.tags, aliases)


def resolve(uri: str, text: str) -> Version:
    """Return the version of ``name@alias``, ``name/3`` or ``name``; a bare name means champion, else candidate.

    A model may have neither, for example if all its versions have overrides. Then this returns the newest version with
    a warning. Raises BadConfiguration with the existing models, aliases or versions.
    """
    name, by_alias, alias = text.partition("@")
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
    if chosen := next(preferred, None):
        return chosen
    newest = of_model[0]
    made = f", made with {newest.tags['overrides']}" if newest.tags.get("overrides") else ""
    log.warning("%s has no %s; this is %s/%s%s", name, " and no ".join(PREFERRED), name, newest.version, made)
    return newest


def create_version(
    uri: str, name: str, model_id: str, run_id: str, tags: Mapping[str, str], model_description: str = ""
) -> Version:
    """Register a logged model as the next version of the model ``name``; creates the model if necessary.

    The source run ``run_id`` gets the keys and digests as tags. Raises NetworkFault if MLflow refuses.
    """
    client = mlflow_client(uri)
    from mlflow.entities import RunTag
    from mlflow.exceptions import MlflowException

    groups = {group: value for group, value in grouped_tags(tags).items() if group in GROUPED_TAGS}
    with refusals(uri, f"does not register {name}"):
        with suppress(MlflowException):  # it exists; the next call shows any other error
            client.create_registered_model(name, description=model_description)
        model = client.get_logged_model(model_id)
        # A server resolves ``models:/``. For a file, MLflow would look for the id at the address in its global state.
        served = uri.startswith(("http://", "https://"))
        source = f"models:/{model_id}" if served else model.artifact_location
        created = client.create_model_version(name, source, run_id, tags=stored_tags(tags), model_id=model_id)
        client.log_batch(run_id, tags=[RunTag(group, value[:MAX_TAG_LENGTH]) for group, value in groups.items()])
        # The model's page shows its versions from this tag.
        named = {"mlflow.modelVersions": json.dumps([{"name": name, "version": int(created.version)}])}
        client.set_logged_model_tags(model_id, named)
    return _to_version(created)


def set_decision(uri: str, version: Version, decision: str, description: str) -> None:
    """Set the description, then the decision tag, so that a version with a decision also has its description."""
    client = mlflow_client(uri)
    number = f"{version.version}"
    with refusals(uri, f"does not change {version.name}/{number}"):
        client.update_model_version(version.name, number, description)
        for tag, details in stored_tags({**version.tags, "decision": decision}).items():
            if tag.startswith(DETAILS):
                client.set_model_version_tag(version.name, number, tag, details)


def set_alias(uri: str, version: Version, alias: str, reason: str, who: str = "") -> str:
    """Move ``alias`` to ``version`` and add a line (when, by whom, why) to its tag ``promotion.<alias>``.

    Only this function moves aliases. ``who`` is by default the present user.

    Returns the line. A repeated call, for example after a kill, adds no second line. Raises BadConfiguration for a name
    that cannot be an alias.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", alias) or RESERVED_ALIAS.fullmatch(alias):
        allowed = "letters, digits, - and _, but neither latest nor v1, v2, …"
        raise BadConfiguration(f"alias is {alias!r}, allowed are {allowed}")
    client = mlflow_client(uri)
    number = f"{version.version}"
    tag = f"{PROMOTION_TAG}{alias}"
    line = f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {who or user()}: {' '.join(reason.split())}"
    with refusals(uri, f"does not give {version.name}/{number} the alias {alias}"):
        moves = [move for move in history(versions(uri, version.name)) if move.alias == alias]
        if moves and moves[0].version == version.version and moves[0].why == line.partition(" ")[2]:
            line = f"{moves[0].when} {moves[0].why}"
        else:
            # Read the tag again: the alias may have moved since the caller read ``version``.
            before = client.get_model_version(version.name, number).tags.get(tag, "")
            # Write the reason first, so that no alias ever lacks one.
            client.set_model_version_tag(version.name, number, tag, "\n".join(filter(None, [before, line])))
        client.set_registered_model_alias(version.name, alias, number)
    return line


def delete_version(uri: str, version: Version) -> None:
    """Delete a version, its aliases, and its logged model unless another version uses it; MLflow keeps the runs.

    MLflow does not reuse its number. Raises NetworkFault if MLflow refuses.
    """
    client = mlflow_client(uri)
    number = f"{version.version}"
    model = MODEL_ID.search(version.source)
    is_shared = any(each.source == version.source for each in versions(uri) if each != version)
    with refusals(uri, f"does not delete {version.name}/{number}"):
        client.delete_model_version(version.name, number)
        if model and not is_shared:
            client.delete_logged_model(model[0])


def source_run(uri: str, version: Version) -> Mapping[str, str]:
    """Return the addresses ``run`` and ``report`` of the pipeline run that made the version, the ``artifacts`` address
    of its stage ``register``, and its parameters as ``params.<name>``. Empty if the run was deleted."""
    client = mlflow_client(uri)
    try:
        registered = client.get_run(version.stage_run)
        run = client.get_run(registered.data.tags.get(PARENT, version.run_id))
    except mlflow_errors():
        return {}
    served = uri.startswith(("http://", "https://"))
    server = public_address(uri.rstrip("/")) if served else "`repro up`, then http://127.0.0.1:5000"
    runs = f"#/experiments/{run.info.experiment_id}/runs"
    report = version.tags.get("report", f"{runs}/{version.stage_run}/artifacts/report/report.html")
    return {
        "run": f"{server}/{runs}/{run.info.run_id}",
        "report": f"{server}/{report}" if report else "",
        "artifacts": registered.info.artifact_uri,
        "parent": run.info.run_id,
        **{f"params.{name}": value for name, value in sorted(run.data.params.items())},
    }


def version_exists(uri: str, name: str, version: int, run_id: str) -> bool:
    """Whether ``run_id`` made that version and it still exists; imports MLflow only for databases other than SQLite.

    A server gets a plain HTTP request. If it does not answer, or refuses the credentials, the version counts as
    existing.
    """
    if not uri.startswith(("http://", "https://")):
        try:
            return any(found.version == version and found.run_id == run_id for found in versions(uri, name))
        except BadConfiguration:  # no database
            return False
    try:
        found = get_json(uri, "model-versions/get", name=name, version=version)
        return bool(found["model_version"].get("run_id") == run_id)
    except urllib.error.HTTPError as error:
        return error.code != 404
    except (OSError, ValueError, KeyError):
        return True
