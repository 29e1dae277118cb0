"""The manifest of an artifact: how its folder was made, and the size and checksum of every file in it."""

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.guards.path_names import is_artifact_name, is_path_name

MANIFEST = "manifest.json"
LOGS = ("metrics.jsonl", "exit.json", "job.json", "job.sh", "*.log")
"""Names of logs. Logs are kept and checked, but differ from run to run, so the content digest leaves them out."""

_LOG_PATTERN = re.compile("|".join(map(fnmatch.translate, LOGS)))


@dataclass(frozen=True)
class Manifest:
    """What ``manifest.json`` holds."""

    stage: str
    key: str
    version: int
    item: str
    arguments: Mapping[str, Any]
    inputs: Mapping[str, str]
    """Maps the ``stage/key`` of each input artifact to its content digest when the stage ran."""
    content: str
    facts: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    """Maps relative paths to ``sha256`` and ``bytes``."""
    seconds: float
    made: Mapping[str, Any]
    """Time, commit, library versions, and the ``attempt`` of a forced stage."""


def is_of_attempt(manifest: Manifest, attempt: str) -> bool:
    """Whether the artifact was made in the forced ``attempt``; "" accepts any."""
    return not attempt or manifest.made.get("attempt") == attempt


def manifest_envelope(manifest: Manifest) -> dict[str, Any]:
    """Return the JSON form of a manifest with its own checksum."""
    return {"sha256": digest_of(vars(manifest)), "manifest": vars(manifest)}


def parse_manifest(text: str | bytes, stage: str, key: str) -> tuple[Manifest, dict[str, Any]] | None:
    """Return the manifest in ``text`` and the whole JSON; None if it was altered or belongs to another artifact.

    Stage and key must match: a folder that was copied to another artifact's place is no artifact.
    """
    try:
        envelope = json.loads(text)
        written = envelope["manifest"]
        manifest = Manifest(**written)
        if envelope["sha256"] != digest_of(written) or (manifest.stage, manifest.key) != (stage, key):
            return None
        return (manifest, envelope) if _is_well_formed(manifest) else None
    except (AttributeError, TypeError, KeyError, ValueError, RecursionError):
        return None


def _is_well_formed(manifest: Manifest) -> bool:
    files = manifest.files.values()
    mappings = (manifest.arguments, manifest.inputs, manifest.facts, manifest.made, *files)
    texts = (manifest.item, manifest.content, *manifest.inputs.values(), *(file["sha256"] for file in files))
    numbers = (manifest.version, manifest.seconds, *(file["bytes"] for file in files))
    return (
        all(isinstance(each, dict) for each in mappings)
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(number, int | float) for number in numbers)
        and is_artifact_name(f"{manifest.stage}/{manifest.key}")
        and manifest.content == content_digest(manifest.files)
        and all(map(is_artifact_name, manifest.inputs))
        and all(map(is_path_name, manifest.files))
    )


def content_digest(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the digest of an artifact's content: the sorted names and checksums of its files, without logs."""
    lines = [f"{files[name]['sha256']}  {name}\n" for name in sorted(files) if not is_log(name)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def digest_of(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def is_log(name: str) -> bool:
    return _LOG_PATTERN.match(name.rpartition("/")[2]) is not None


def bytes_of(manifest: Manifest) -> int:
    return sum(int(file["bytes"]) for file in manifest.files.values())


def seconds_of(manifest: Manifest) -> float:
    """How long its stage took: by its own count where it has one, as of a training with its parts before a resume."""
    counted = manifest.facts.get("seconds", 0.0)
    return max(manifest.seconds, counted if isinstance(counted, int | float) else 0.0)
