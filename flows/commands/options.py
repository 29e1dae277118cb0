"""Options that several commands share."""

import os
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from cyclopts import Parameter

from flows.reproduce import STAGES
from flows.runner.find_run import swapped_name
from flows.runner.request import RunRequest
from flows.runs.completion import RUN_NAMES, OverridesOption
from flows.runs.overrides import STRICT_NUMERICS
from model.config.decoding import EngineChoice, Quantization

STAGE_NAMES = Parameter(completer=lambda _: [*STAGES])
JsonOption = Annotated[bool, Parameter(name="--json", help="print one JSON object as the last line of stdout")]
EngineOption = Annotated[
    EngineChoice,
    Parameter(help="auto: CTranslate2 on CPUs if installed and if it searches like our own engine, else our own"),
]
QuantizationOption = Annotated[
    Quantization,
    Parameter(help="type of CTranslate2's matrices; int8 is faster and finds nearly the same translations"),
]
SiteOption = Annotated[str, Parameter(help="where to compute: local or gpu")]
SwapOption = Annotated[bool, Parameter(help="run the other direction, NAME-swapped: swap source and target")]


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Arguments of run and plan: the fields of a RunRequest."""

    run: Annotated[str, RUN_NAMES, Parameter(help="a run (see `repro show`), or your own: FILE.toml, FILE.py:NAME")]
    _: KW_ONLY
    from_stage: Annotated[
        str, STAGE_NAMES, Parameter(name="--from", help="run this stage and all later ones, even if they are cached")
    ] = ""
    until: Annotated[str, STAGE_NAMES, Parameter(help="stop after this stage")] = ""
    force: Annotated[
        tuple[str, ...],
        STAGE_NAMES,
        Parameter(help="run this stage even if it is cached; repeatable", show_default=False),
    ] = ()
    overrides: OverridesOption = ()
    site: SiteOption = "local"
    swap: SwapOption = False
    strict: Annotated[
        bool, Parameter(help="count an artifact as cached only if the present code and libraries made it")
    ] = False
    strict_numerics: Annotated[
        bool, Parameter(help="results that are equal to the bit on different CPUs; several times slower")
    ] = False

    def request(self) -> RunRequest:
        """Make the request; sets ``--strict`` in the environment for this process and its children."""
        if self.strict:
            os.environ["REPRO_STRICT"] = "1"
        numerics = STRICT_NUMERICS if self.strict_numerics else ()
        run = swapped_name(self.run) if self.swap else self.run
        overrides = (*self.overrides, *numerics)
        return RunRequest(run, self.from_stage, self.until, self.force, overrides, self.site)
