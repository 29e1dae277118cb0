"""``repro compare``."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption
from flows.views.tables import comparison_table
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
    from flows.inspection.compare import compare_systems, find_system
    from tasks.evaluation.compare import page

    site = Site.named()
    configure_libraries(site.root)
    first, second = find_system(a, site), find_system(b, site)
    comparisons = compare_systems(first, second, site)
    error = console()
    error.print(f"A: {first.name}\nB: {second.name}", markup=False)
    error.print(comparison_table(comparisons))
    if html:
        html.write_text(page(first.name, second.name, comparisons))
        error.print(f"\npage:    {html}", markup=False, soft_wrap=True)
    if as_json:
        result = {"a": first.name, "b": second.name, "sets": [asdict(each) for each in comparisons]}
        print(json.dumps(result, ensure_ascii=False))
