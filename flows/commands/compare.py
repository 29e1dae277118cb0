"""``repro compare``."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import RenderableType

from flows.commands.options import JsonOption
from flows.views.comparison_view import differing_table, groups_table, scores_table
from flows.views.terminal import show
from infra.errors import BadConfiguration
from infra.site import Site, configured_site
from model.metric_names import CHRF
from tasks.registration.differences import DifferingField, differing_fields


def compare(
    *names: Annotated[
        str,
        Parameter(
            help="runs, versions such as demo@champion or demo/3, scores such as demo/score/test, or systems as "
            "`repro score` stored them, such as system:google"
        ),
    ],
    seeds: Annotated[
        bool, Parameter(help="compare all recorded seeds of each run; 'demo --set FIELD=VALUE' names other settings")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare runs or model versions: the fields in which they differ, and their scores.

    Compares scores of every set that both the first and another system have, with p-values by paired bootstrap. They
    are two-sided; sacreBLEU's `--paired-bs` counts one tail, so its values are about half. --seeds compares the means
    of groups over seeds and sentences; the verdict may be "undecided" (docs/judging.md).

    For example:

    repro compare demo/1 demo@candidate

    repro compare multi30k-ende multi30k-ende-distilled --seeds
    """
    if len(names) < 2:
        raise BadConfiguration(f"{len(names)} systems are named, allowed are two or more, as in demo/1 demo/2")
    shown, result = (_compare_seeds if seeds else _compare_models)(names, configured_site())
    show(*shown, result=result if as_json else None)


def _compare_models(names: Sequence[str], site: Site) -> tuple[Sequence[RenderableType], dict[str, Any]]:
    """Return what is shown, and its JSON."""
    from flows.inspection.compare import compare_systems, find_system, training_size

    systems = [find_system(name, site) for name in names]
    titles = [system.name for system in systems]
    models = {system.name: system.lineage for system in systems if system.lineage}
    sizes = tuple(map(training_size, models.values()))
    trainings = [DifferingField("training", sizes)] if len({*sizes}) > 1 else []
    fields = [*trainings, *differing_fields([*models.values()])]
    comparisons = [compare_systems(systems[0], other, site) for other in systems[1:]]
    settings = (differing_table([*models], fields), "") if len(models) > 1 else ()
    return (*settings, scores_table(titles, comparisons)), {
        "systems": titles,
        "models": [*models],
        "differing": [asdict(field) for field in fields],
        "comparisons": [
            {"with": other, "sets": {name: [asdict(each) for each in rows] for name, rows in sets.items()}}
            for other, sets in zip(titles[1:], comparisons, strict=True)
        ],
    }


def _compare_seeds(names: Sequence[str], site: Site) -> tuple[Sequence[RenderableType], dict[str, Any]]:
    from flows.inspection.compare import common_sets
    from flows.inspection.seed_groups import compare_on, find_group

    groups = [(name, find_group(name, site, fewest=2)) for name in names]
    first = groups[0][1]
    comparisons = [
        (name, compare_on(set_name, first, other, site, metric=metric))
        for name, other in groups[1:]
        for set_name in common_sets(*first.values(), *other.values())
        for metric in ("", CHRF)
    ]
    fields = differing_fields([next(iter(group.values())).lineage for _, group in groups])
    could = "could show: the smallest difference that this number of seeds shows with probability 0.8, at this noise"
    return (differing_table(names, fields), "", groups_table(names[0], comparisons), could), {
        "groups": {name: list(group) for name, group in groups},
        "differing": [asdict(field) for field in fields],
        "comparisons": [
            {"with": name, **asdict(each), "verdict": each.difference.verdict()} for name, each in comparisons
        ],
    }
