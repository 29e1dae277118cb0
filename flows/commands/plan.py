"""``repro plan``."""

from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, RunOptions
from flows.runner.request import make_plan
from flows.views.stage_words import outcome_json
from flows.views.tables import cost_sentence, cost_table, stage_table
from flows.views.terminal import print_json, show
from infra.servers.mlflow_sqlite import check_database


def plan(
    asked: RunOptions,
    *,
    cost: Annotated[bool, Parameter(help="estimate time and disk of what is not cached, and say from what")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show for each stage whether it is cached, and if not, what changed since the last run. Runs nothing.

    Example: repro plan wmt14-ende-base --site gpu --cost
    """
    resolved = asked.request().resolve()
    check_database(resolved.site.tracking)
    planned = make_plan(resolved)
    if not cost:
        outcome = planned.outcome
        if as_json:
            print_json(outcome_json(outcome))
        else:
            show(stage_table(outcome.rows))
        return
    from flows.inspection.cost import estimate_cost

    found = estimate_cost(planned)
    if as_json:
        print_json(found.as_json())
    else:
        show(cost_table(found), f"\n{cost_sentence(found)}")
