"""Files for a public forge are valid, and its workflow and the hooks before a commit run what `make` runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOP = Path(__file__).resolve().parents[1]
WORKFLOW = TOP / ".github" / "workflows" / "checks.yml"
UPDATES = TOP / ".github" / "dependabot.yml"
HOOKS = TOP / ".pre-commit-config.yaml"


@pytest.mark.parametrize(
    ("schema", "file"),
    [("github-workflows", WORKFLOW), ("dependabot", UPDATES), ("citation-file-format", TOP / "CITATION.cff")],
)
def test_files_are_as_their_schemas_want_them(schema: str, file: Path) -> None:
    """As check-jsonschema holds them; nothing is downloaded."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", f"{file}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_runs_the_check_of_every_landing() -> None:
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert runs == [".ci/run"]
    check = TOP / ".ci" / "run"
    assert check.stat().st_mode & 0o111
    assert re.search(r"^make test$", check.read_text(), re.MULTILINE)


def test_the_devcontainer_sets_up_by_make() -> None:
    container = json.loads((TOP / ".devcontainer" / "devcontainer.json").read_text())
    program, target = container["onCreateCommand"].split()
    assert program == "make"
    assert re.search(rf"^{target}:", (TOP / "Makefile").read_text(), re.MULTILINE)


def test_hooks_are_the_programs_of_make_lint() -> None:
    ((local),) = yaml.safe_load(HOOKS.read_text())["repos"]
    for hook in local["hooks"]:
        assert hook["entry"].split()[0].startswith(".venv/bin/")
        program = hook["entry"].removeprefix(".venv/bin/").split()[0]
        assert f"$(RUN)/{program}" in (TOP / "Makefile").read_text()
