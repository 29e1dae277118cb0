"""Options that several commands share, and candidates for shell completion: run names and fields.

The shell calls ``repro`` for the candidates at each TAB.
"""

from dataclasses import fields, is_dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from flows.runs.built_in_runs import DEMO, RUNS
from infra.site import Site
from infra.tracking.registry import versions


def _fields(context: Any) -> list[str]:
    """``training.updates=`` and the like: the fields of the run that is named, or of the demo."""
    typed = context.get("run")
    return [f"{path}=" for path in field_paths(RUNS.get(typed.value if typed else "", DEMO))]


def field_paths(holder: Any, prefix: str = "") -> list[str]:
    """The paths that ``--set`` takes for the single values of a dataclass."""
    found = []
    for field in fields(holder):
        value = getattr(holder, field.name)
        path = f"{prefix}{field.name}"
        found += field_paths(value, f"{path}.") if is_dataclass(value) else [path]
    return found


RecordedRunOption = Annotated[
    str,
    Parameter(
        completer=lambda _: sorted(folder.name for folder in (Site.named().root / "runs").glob("*") if folder.is_dir()),
        help="a run as `repro history` names it, or FILE.toml",
    ),
]
VERSION_NAMES = Parameter(completer=lambda _: [each.label for each in versions(Site.named().registry)])
RUN_NAMES = Parameter(completer=lambda _: [*RUNS])
OverridesOption = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        help="set one field of the run, for example training.updates=200; repeatable",
        show_default=False,
        completer=_fields,
    ),
]
