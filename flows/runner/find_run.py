"""Finds a run by its name: one of ``flows.runs``, a row of the paper on some corpus, or one in a user's file."""

import importlib.util
import sys
from pathlib import Path

from flows.runs import RUNS, Run
from flows.runs.paper_rows import parse_run_name
from infra.errors import BadConfiguration

PROJECT = str(Path(__file__).resolve().parents[2])
"""The folder that contains this project's packages."""


def find_run(name: str) -> Run:
    """The run ``demo``, ``demo-paper-A1-scale8`` or ``my_runs.py:NAME``; raises BadConfiguration for an unknown one."""
    if ":" in name:
        return _run_from_file(*name.rsplit(":", 1))
    found = RUNS.get(name) or parse_run_name(name)
    if not found:
        others = "rows of the paper elsewhere, as demo-paper-A1-scale8; FILE.py:NAME for your own"
        raise BadConfiguration(f"unknown run {name!r}, known are: {', '.join(RUNS)}; {others}")
    return found


def _run_from_file(file: str, name: str) -> Run:
    path = Path(file)
    if not path.is_file():
        raise BadConfiguration(f"no file {file!r} to take the run {name!r} from")
    spec = importlib.util.spec_from_file_location(f"_runs_of_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BadConfiguration(f"{file!r} is not a Python file")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # as dataclasses in the file expect it
    # The file may import its neighbours. They come last, behind this project's packages (which an editable install
    # finds only after all of sys.path), and stay, because worker processes inherit the list and import them by name.
    sys.path += [folder for folder in (PROJECT, str(path.parent.absolute())) if folder not in sys.path]
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadConfiguration(f"{file}: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not isinstance(found, Run):
        known = [other for other, value in vars(module).items() if isinstance(value, Run)]
        raise BadConfiguration(f"{file} has no run {name!r}; its runs are: {', '.join(known) or 'none'}")
    return found
