"""``repro compare``."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption
from flows.views.tables import collapse_table, comparison_table
from flows.views.terminal import console
from infra.servers.environment import configure_libraries
from infra.site import Site


def compare(
    a: Annotated[
        str, Parameter(help="a run, a version such as demo@champion or demo/3, or scores such as demo/score/test")
    ],
    b: Annotated[str, Parameter(help="another run, version or scores")],
    *,
    html: Annotated[Path | None, Parameter(help="also write an HTML page with the sentences that differ most")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs or model versions on every set that both were scored on, with paired bootstrap p-values.

    Example: repro compare demo/1 demo@candidate --html compared.html
    """
    from flows.inspection.compare import collapse_curves, compare_systems, find_system
    from tasks.evaluation.collapse import last_values
    from tasks.evaluation.compare import page
    from tasks.evaluation.pictures import layers_picture

    site = Site.named()
    configure_libraries(site.root)
    first, second = find_system(a, site), find_system(b, site)
    comparisons = compare_systems(first, second, site)
    error = console()
    error.print(f"A: {first.name}\nB: {second.name}", markup=False)
    error.print(comparison_table(comparisons))
    curves = {f"A: {first.name}": collapse_curves(first, site), f"B: {second.name}": collapse_curves(second, site)}
    last = [last_values(each) for each in curves.values()]
    if any(last):
        error.print(collapse_table(*last))
    if html:
        html.write_text(page(first.name, second.name, comparisons, layers_picture(curves)))
        error.print(f"\npage:    {html}", markup=False, soft_wrap=True)
    if as_json:
        sets, layers = [asdict(each) for each in comparisons], {"a": last[0], "b": last[1]}
        result = {"a": first.name, "b": second.name, "sets": sets, "layers": layers}
        print(json.dumps(result, ensure_ascii=False))
