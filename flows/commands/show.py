"""``repro show``."""

from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import OverridesOption
from flows.runner.find_run import find_run
from flows.runs.overrides import override
from flows.runs.toml_runs import toml_of


def show(
    run: Annotated[str, Parameter(help="name of a run (see `repro runs`), FILE.toml, or FILE.py:NAME")],
    *,
    extends: Annotated[str, Parameter(help="print what differs from this run, and `extends` for the rest")] = "",
    overrides: OverridesOption = (),
) -> None:
    """Print every field of a run as TOML, with what it means; `repro run FILE.toml` takes the same form.

    For example:

    repro show demo

    repro show multi30k-ende --set model.layers=6 --extends multi30k-ende > deeper.toml
    """
    print(toml_of(override(find_run(run), overrides), find_run(extends) if extends else None, extends), end="")
