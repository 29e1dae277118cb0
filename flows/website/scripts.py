"""Writes data of versions as scripts, which a page can load from ``file://`` to compare two versions."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from flows.website.registry import ModelEntry, VersionEntry
from tasks.registration.differences import library_versions


def version_script(entry: VersionEntry, curves: Mapping[str, Any]) -> str:
    """Write a call of ``addVersion``: from ``file://``, browsers load scripts but no JSON."""
    text = {name: entry.training.get(name) for name in ("parameters", "device", "ranks")}
    made = {f"made.{name}": entry.made.get(name) for name in ("machine", "commit")}
    made |= {f"library.{name}": text for name, text in library_versions(entry.read_lineage()).items()}
    digests = {f"digest.{name}": digest[:16] for name, digest in entry.version.digests.items()}
    others = {name: f"{value}" for name, value in {**text, **made, **digests}.items() if value is not None}
    scores = {name: {measure: vars(score) for measure, score in found.items()} for name, found in entry.scores.items()}
    data = {
        "label": entry.label,
        "fields": {**entry.settings, **others},
        "scores": scores,
        "references": {name: entry.references(name) for name in scores},
        "curves": curves,
    }
    return f"addVersion({script_json(data)});\n"


def list_script(models: Iterable[ModelEntry]) -> str:
    """Write the pages of all versions by label, the newest first."""
    pages = {entry.label: entry.page for model in models for entry in model.versions}
    return f"const versionPages = {script_json(pages)};\n"


def script_json(value: Any) -> str:
    # Only ASCII: the file stays correct if a host declares another encoding.
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
