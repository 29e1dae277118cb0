"""A manifest as an in-toto Statement v1 with a SLSA provenance v1 predicate, for verifiers that know those formats.

The subjects are the artifact's files. Inputs are named by ``stage/key`` and their content digest, which in-toto calls
``dirHash1``: the sha256 of the lines that ``sha256sum`` prints for the files that are not logs, sorted by name.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from infra.store.manifest import Manifest, digest_of

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:attention-repro:stage:v1"
BUILDER = "urn:attention-repro:runner"
MANIFEST_NAME = "manifest"
"""The byproduct whose digest is the manifest's own sum: it ties a statement to all that the manifest says."""
NOT_VERSIONS = ("at", "commit", "machine", "attempt")
"""Fields of ``made`` that are texts but no version of a library."""


def statement_of(manifest: Manifest) -> dict[str, Any]:
    """The statement about an artifact: its files, what they were made from, how, by what and when."""
    made = manifest.made
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": manifest.files[name]["sha256"]}} for name in sorted(manifest.files)
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "stage": manifest.stage,
                    "version": manifest.version,
                    "item": manifest.item,
                    "key": manifest.key,
                    "arguments": manifest.arguments,
                },
                "internalParameters": {name: made[name] for name in ("machine", "attempt") if name in made},
                "resolvedDependencies": [*_inputs(manifest), *_archives(manifest.arguments), *_source(made)],
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": _versions(made)},
                "metadata": {"invocationId": f"{manifest.stage}/{manifest.key}", **_times(manifest)},
                "byproducts": [
                    {"name": MANIFEST_NAME, "digest": {"sha256": digest_of(vars(manifest))}},
                    {"name": "facts", "annotations": manifest.facts},
                ],
            },
        },
    }


def manifest_sum(statement: Mapping[str, Any]) -> str:
    """The sum of the manifest that a statement is about; "" where it names none."""
    try:
        byproducts = statement["predicate"]["runDetails"]["byproducts"]
        return str(next(each["digest"]["sha256"] for each in byproducts if each["name"] == MANIFEST_NAME))
    except (KeyError, TypeError, StopIteration):
        return ""


def _inputs(manifest: Manifest) -> Iterator[dict[str, Any]]:
    for name in sorted(manifest.inputs):
        yield {"name": name, "digest": {"dirHash1": manifest.inputs[name]}}


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
    return {name: value for name, value in made.items() if isinstance(value, str) and name not in NOT_VERSIONS}


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
