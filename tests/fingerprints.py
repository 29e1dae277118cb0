"""Fingerprints of the code that decides each stage's result: the version guard's memory.

A stage's key holds its ``version``, which is raised by hand. This says when that is needed: ``tasks.engine.stage_code``
hashes the code of each stage, and ``fingerprints.json`` records the hashes.

    python tests/fingerprints.py            which stages changed
    python tests/fingerprints.py --accept   record the present code: results stay the same, or ``version`` was raised
"""

import hashlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_name("fingerprints.json")


def fingerprints() -> dict[str, dict[str, Any]]:
    """``{stage: {"version": n, "code": digest, "modules": names}}`` of the present code."""
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    stages = importlib.import_module("flows.reproduce").STAGES
    stage_code = importlib.import_module("tasks.engine.stage_code").stage_code
    found = {}
    for name in stages:
        stage = getattr(importlib.import_module(f"tasks.stages.{name}"), name)
        modules = stage_code(f"tasks.stages.{name}").modules
        digest = hashlib.sha256("\n".join(f"{module} {code}" for module, code in modules.items()).encode()).hexdigest()
        found[name] = {"version": stage.version, "code": digest[:16], "modules": list(modules)}
    return found


def recorded() -> dict[str, dict[str, Any]]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def changes() -> list[str]:
    """One sentence for each stage whose code changed under an unchanged version, or that is not recorded."""
    now, before = fingerprints(), recorded()
    found = []
    for name, present in now.items():
        known = before.get(name)
        if known is None or known["version"] != present["version"]:
            found.append(f"{name}: version {present['version']} is not recorded")
        elif known["code"] != present["code"]:
            found.append(f"{name}: its code changed, version is still {present['version']}")
    return found


if __name__ == "__main__":
    if "--accept" in sys.argv:
        RECORD.write_text(json.dumps(fingerprints(), indent=1) + "\n")
    print("\n".join(changes()) or "every stage is as recorded")
