"""Manifests and model versions as in-toto Statements v1 with SLSA provenance v1, for verifiers that know those formats.

The subjects are files. Inputs are named by ``stage/key`` and their content digest, which in-toto calls
``dirHash1``: the sha256 of the lines that ``sha256sum`` prints for the files that are not logs, sorted by name.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from infra.store.manifest import Manifest, content_digest, digest_of

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:attention-repro:stage:v1"
VERSION_TYPE = "urn:attention-repro:version:v1"
ADOPTION_TYPE = "urn:attention-repro:adoption:v1"
"""The type of work that existed before: nothing is said of what it was made from."""
CHECKPOINT_TYPE = "urn:attention-repro:checkpoint:v1"
BUILDER = "urn:attention-repro:runner"
MANIFEST_NAME = "manifest"
"""The byproduct whose digest is the manifest's own sum: it ties a statement to all that the manifest says."""
NOT_VERSIONS = ("at", "commit", "machine", "attempt")
"""Fields of ``made`` that are texts but no version of a library."""


def statement_of(manifest: Manifest) -> dict[str, Any]:
    """The statement about an artifact: its files, what they were made from, how, by what and when."""
    made = manifest.made
    definition = {
        "buildType": ADOPTION_TYPE if manifest.adopted else BUILD_TYPE,
        "externalParameters": {
            "stage": manifest.stage,
            "version": manifest.version,
            "item": manifest.item,
            "key": manifest.key,
            "arguments": manifest.arguments,
        },
        "internalParameters": {
            name: made[name] for name in ("machine", "attempt", "modules", "adopted") if name in made
        },
        "resolvedDependencies": []
        if manifest.adopted
        else [*_inputs(manifest.inputs), *_archives(manifest.arguments), *_source(made)],
    }
    details = {
        "builder": {"id": BUILDER, "version": _versions(made)},
        "metadata": {"invocationId": f"{manifest.stage}/{manifest.key}", **_times(manifest)},
        "byproducts": [
            {"name": MANIFEST_NAME, "digest": {"sha256": digest_of(vars(manifest))}},
            {"name": "facts", "annotations": manifest.facts},
        ],
    }
    return _statement(manifest.files, definition, details)


def version_statement(
    name: str, version: int, files: Mapping[str, Mapping[str, Any]], inputs: Mapping[str, str]
) -> dict[str, Any]:
    """The statement about a registered version: the files of its model, and the artifacts that they came from.

    ``files``: ``sha256`` by path in the model's folder; ``inputs``: content digest by ``stage/key``.
    """
    definition = {
        "buildType": VERSION_TYPE,
        "externalParameters": {"name": name, "version": version},
        "resolvedDependencies": list(_inputs(inputs)),
    }
    return _statement(files, definition, {"builder": {"id": BUILDER}})


def checkpoint_statement(place: str, mark: str, attempt: str, sums: Mapping[str, str]) -> dict[str, Any]:
    """The statement about the files of unfinished work, kept at ``place`` in a bucket; ``sums``: sha256 by path."""
    definition = {
        "buildType": CHECKPOINT_TYPE,
        "externalParameters": {"place": place, "mark": mark, "attempt": attempt},
        "resolvedDependencies": [],
    }
    return _statement({name: {"sha256": sums[name]} for name in sums}, definition, {"builder": {"id": BUILDER}})


def _statement(
    files: Mapping[str, Mapping[str, Any]], definition: Mapping[str, Any], details: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": files[name]["sha256"]}} for name in sorted(files)],
        "predicateType": PREDICATE,
        "predicate": {"buildDefinition": definition, "runDetails": details},
    }


def manifest_sum(statement: Mapping[str, Any]) -> str:
    """The sum of the manifest that a statement is about; "" where it names none."""
    try:
        byproducts = statement["predicate"]["runDetails"]["byproducts"]
        return str(next(each["digest"]["sha256"] for each in byproducts if each["name"] == MANIFEST_NAME))
    except (KeyError, TypeError, StopIteration):
        return ""


def subjects_of(statement: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The files that a statement is about: ``sha256`` by path."""
    return {each["name"]: {"sha256": each["digest"]["sha256"]} for each in statement["subject"]}


def parameters_of(statement: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was asked for: stage, key and arguments, or name and number of a version."""
    parameters: Mapping[str, Any] = statement["predicate"]["buildDefinition"]["externalParameters"]
    return parameters


def is_adoption(statement: Mapping[str, Any]) -> bool:
    """Whether a statement is about work that existed before, so that nothing proves what it was made from."""
    return bool(statement["predicate"]["buildDefinition"]["buildType"] == ADOPTION_TYPE)


def content_of(statement: Mapping[str, Any]) -> str:
    """Content digest of the files that a statement is about."""
    return content_digest(subjects_of(statement))


def inputs_of(statement: Mapping[str, Any]) -> dict[str, str]:
    """Content digest of each input, by ``stage/key``."""
    return {each["name"]: each["digest"]["dirHash1"] for each in _dependencies(statement, "dirHash1")}


def archives_of(statement: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Published sums of the files of the outside world, by path."""
    found = [*_dependencies(statement, "sha256"), *_dependencies(statement, "md5")]
    return {each["name"]: dict(each["digest"]) for each in found}


def _dependencies(statement: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    dependencies = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    return [each for each in dependencies if kind in each["digest"]]


def _inputs(inputs: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for name in sorted(inputs):
        yield {"name": name, "digest": {"dirHash1": inputs[name]}}


def _archives(argument: Any) -> Iterator[dict[str, Any]]:
    """Files of the outside world: every argument, however deep, that has a ``path`` and a published sum."""
    if isinstance(argument, Mapping):
        sums = {name: argument[name] for name in ("sha256", "md5") if argument.get(name)}
        if sums and "path" in argument:
            yield {"name": argument["path"], "digest": sums}
        argument = list(argument.values())
    for part in argument if isinstance(argument, list | tuple) else ():
        yield from _archives(part)


def _source(made: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The commit of this project; ``modified`` where the working tree differed from it."""
    if commit := made.get("commit"):
        modified = {"annotations": {"modified": True}} if commit.endswith("+") else {}
        yield {"name": "attention-repro", "digest": {"gitCommit": commit.removesuffix("+")}, **modified}


def _versions(made: Mapping[str, Any]) -> dict[str, str]:
    """Python and the libraries, also those that the stage itself imports."""
    texts = {name: value for name, value in made.items() if isinstance(value, str) and name not in NOT_VERSIONS}
    return texts | dict(made.get("libraries", {}))


def _times(manifest: Manifest) -> dict[str, str]:
    """Begin and end in UTC; nothing for a manifest that names no time."""
    try:
        end = datetime.fromisoformat(manifest.made["at"])
    except (KeyError, ValueError):
        return {}
    begin = end - timedelta(seconds=manifest.seconds)
    return {
        name: f"{time.isoformat(timespec='seconds').removesuffix('+00:00')}Z"
        for name, time in (("startedOn", begin), ("finishedOn", end))
    }
