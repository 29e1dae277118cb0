"""The campaign: pages of many runs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from made_up_roots import record

from flows.runner.recorded_runs import read_history
from flows.website.campaign import RUNS_ON_A_PAGE, campaign_pages
from infra.store.local import LocalStore


def test_many_runs_go_on_several_pages(tmp_path: Path) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    assert [page.name for page in campaign_pages([])] == ["campaign.html"]
    for number in range(RUNS_ON_A_PAGE + 1):
        record(tmp_path, "demo", began + timedelta(hours=number), [{"stage": "clean"}])
    pages = campaign_pages(read_history(LocalStore(tmp_path)))
    assert [page.name for page in pages] == ["campaign.html", "campaign-2.html"]
    assert [len(page.runs) for page in pages] == [RUNS_ON_A_PAGE, 1]
    assert pages[1].runs[0].started == began
