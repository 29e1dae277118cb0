"""A software bill of materials of this environment, in CycloneDX's JSON format: Python and every installed package.

It describes the process that registers a model. What trained it elsewhere is in the manifest of its training.
"""

import platform
import re
import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from typing import Any

from infra.tracking.provenance import commit

SBOM_FILE = "sbom.cdx.json"
"""The name by which tools recognise the format."""
PROJECT = "attention-repro"


def environment_sbom() -> dict[str, Any]:
    """The bill, by CycloneDX 1.6; packages by name."""
    packages: dict[str, dict[str, Any]] = {}
    for distribution in distributions():
        component = _component(distribution)
        packages.setdefault(component["bom-ref"].partition("@")[0], component)  # as imports do, the first one counts
    project = packages.pop(f"pkg:pypi/{PROJECT}", {"type": "library", "name": PROJECT, "bom-ref": PROJECT})
    made_from = {"properties": [{"name": "commit", "value": commit()}]} if commit() else {}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "lifecycles": [{"phase": "build"}],
            "component": {**project, "type": "application", **made_from},
        },
        "components": [*_platform(), *(packages[name] for name in sorted(packages))],
    }


def _component(distribution: Distribution) -> dict[str, Any]:
    name = re.sub(r"[-_.]+", "-", distribution.name).lower()
    purl = f"pkg:pypi/{name}@{distribution.version.replace('+', '%2B')}"
    about, name_of_licence = distribution.metadata, "License-Expression"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": distribution.name,
        "version": distribution.version,
        "purl": purl,
        **({"licenses": [{"expression": about[name_of_licence]}]} if name_of_licence in about else {}),
    }


def _platform() -> list[dict[str, Any]]:
    system, python = platform.system(), platform.python_version()
    return [
        {"type": "operating-system", "bom-ref": "os", "name": system, "version": platform.release()},
        {"type": "platform", "bom-ref": "python", "name": platform.python_implementation(), "version": python},
    ]
