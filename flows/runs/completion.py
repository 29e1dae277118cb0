"""Options that several commands share, and candidates for shell completion: run names and fields.

The shell calls ``repro`` for the candidates at each TAB.
"""

from typing import Annotated, Any

from cyclopts import Parameter

from flows.runs.built_in_runs import DEMO, RUNS
from flows.runs.overrides import field_paths
from infra.site import Site
from infra.tracking.registry import versions


def _fields(context: Any) -> list[str]:
    """Completes the fields of the named run, or of the demo, as ``training.updates=``."""
    typed = context.get("run")
    return [f"{path}=" for path in field_paths(RUNS.get(typed.value if typed else "", DEMO))]


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
