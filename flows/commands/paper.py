"""``repro paper``."""

from flows.commands.options import JsonOption
from flows.orchestration.dispatch import dispatch_group
from flows.runner.group import GroupFailed
from flows.runner.paper import PaperRequest, PaperResults
from flows.views.tables import paper_table
from flows.views.terminal import show
from infra.servers.environment import configure_libraries
from tasks.evaluation.paper_page import introduction, row_cells


def paper(*, request: PaperRequest | None = None, as_json: JsonOption = False) -> None:
    """Run rows of the paper's Tables 2 and 3 and compare their results with the paper's.

    For example:

    repro paper --rows base,A1,C2,D0 --corpus demo

    repro paper --rows base --corpus wmt14-sample-ende --scale 8 --set training.updates=500
    """
    resolved = (request or PaperRequest()).resolve()
    configure_libraries(resolved.group.site.root)
    try:
        _show(dispatch_group(resolved), as_json)
    except GroupFailed as failed:
        _show(failed.found, as_json)
        raise


def _show(found: PaperResults, as_json: bool) -> None:
    lines = found.comparisons()
    table = paper_table([row_cells(line.row.row, line) for line in lines])
    page = found.request.page(found.group.site.root)
    title = f"\nAgainst the paper: {found.request.title}\n"
    show(title, table, "", *introduction(lines), f"page:    {page}", result=found.as_json() if as_json else None)
