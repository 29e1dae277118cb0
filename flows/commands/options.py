"""What several commands are asked alike."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from cyclopts import Parameter

from flows.runner.run import RunRequest

JsonOption = Annotated[bool, Parameter(name="--json", help="one JSON object as the last line of stdout", negative=())]
OverridesOption = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        help="one field of the run, as in training.updates=200; may be repeated",
        negative=(),
        show_default=False,
    ),
]
SiteOption = Annotated[str, Parameter(help="where to compute: local or gpu")]


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """What run and plan are asked alike: a Request, word by word."""

    run: Annotated[str, Parameter(help="a run's name (see `repro runs`), or FILE.py:NAME for one of your own")]
    _: KW_ONLY
    from_stage: Annotated[str, Parameter(name="--from", help="run this stage and all after it, cached or not")] = ""
    until: Annotated[str, Parameter(help="stop after this stage")] = ""
    force: Annotated[
        tuple[str, ...],
        Parameter(help="run this stage, cached or not; may be repeated", negative=(), show_default=False),
    ] = ()
    overrides: OverridesOption = ()
    site: SiteOption = "local"

    def request(self) -> RunRequest:
        return RunRequest(**vars(self))
