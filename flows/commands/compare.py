"""``repro compare``."""

import json
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption
from flows.views.comparison_view import collapse_table, differing_table, scores_table, trainings_table
from flows.views.terminal import console
from infra.errors import BadConfiguration
from infra.servers.environment import configure_libraries
from infra.site import Site


def compare(
    *names: Annotated[
        str, Parameter(help="runs, versions such as demo@champion or demo/3, or scores such as demo/score/test")
    ],
    as_json: JsonOption = False,
) -> None:
    """Compare runs or model versions: the fields in which they differ, their trainings, and their scores.

    Scores are those of every set that both the first and another one were scored on, with p-values by paired bootstrap.
    They are two-sided; sacreBLEU's `--paired-bs` counts one tail and gives about half of them.

    For example:

    repro compare demo/1 demo@candidate

    repro compare demo/1 demo/2 demo/3
    """
    from flows.inspection.compare import compare_systems, find_system, metrics_of
    from tasks.evaluation.training_log import last_values, layer_curves, training_curves
    from tasks.registration.differences import differing_fields

    if len(names) < 2:
        raise BadConfiguration(f"{len(names)} systems are named, allowed are two or more, as in demo/1 demo/2")
    site = Site.named()
    configure_libraries(site.root)
    systems = [find_system(name, site) for name in names]
    titles = [system.name for system in systems]
    fields = differing_fields([system.lineage for system in systems])
    comparisons = [compare_systems(systems[0], other, site) for other in systems[1:]]
    metrics = metrics_of(systems, site)
    curves = {name: training_curves(file) for name, file in metrics.items()}
    last = {name: last_values(layer_curves(metrics[name])) if name in metrics else {} for name in titles}
    error = console()
    error.print(differing_table(titles, fields) if fields else "no recorded field differs")
    for table in (trainings_table(curves), collapse_table(last), scores_table(titles, comparisons)):
        if table:
            error.print()
            error.print(table)
    if as_json:
        result = {
            "systems": titles,
            "differing": [asdict(field) for field in fields],
            "comparisons": [
                {"with": other, "sets": [asdict(each) for each in sets]}
                for other, sets in zip(titles[1:], comparisons, strict=True)
            ],
            "curves": {
                name: {column: values.tolist() for column, values in vars(each).items()}
                for name, each in curves.items()
            },
            "layers": last,
        }
        print(json.dumps(result, ensure_ascii=False))
