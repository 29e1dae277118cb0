"""The campaign: pruned trials, and pages of many runs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from made_up_roots import record

from flows.runner.recorded_runs import read_history
from flows.views.history_view import history_text
from flows.website.campaign import RUNS_ON_A_PAGE, campaign_pages, totals
from flows.website.render import render
from infra.store.local import LocalStore


def test_a_pruned_trial_is_not_shown_as_failed(tmp_path: Path) -> None:
    why, rows = "pruned at update 4: dev perplexity 9.00", [{"stage": "train", "state": "pruned"}]
    record(tmp_path, "ende", datetime(2026, 1, 1, tzinfo=UTC), rows, outcome="PRUNED", failure=why)
    found = read_history(LocalStore(tmp_path))
    (page,) = campaign_pages(found)
    values: dict[str, Any] = {"registered": {}, "written": datetime.now(UTC), "commit": ""}
    text = render("campaign.html", page.name, here=page, pages=[page], totals=totals(found), **values)
    assert '<span class="muted">pruned</span>' in text
    assert why in text
    assert "train: pruned" in text
    assert "0 made, 0 cached</summary>" in text
    assert (totals(found).outcomes, totals(found).failed) == ({"PRUNED": 1}, 0)
    assert "PRUNED" in history_text(found)
    assert "failed" not in history_text(found).casefold()


def test_many_runs_go_on_several_pages(tmp_path: Path) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    assert [page.name for page in campaign_pages([])] == ["campaign.html"]
    for number in range(RUNS_ON_A_PAGE + 1):
        record(tmp_path, "demo", began + timedelta(hours=number), [{"stage": "clean"}])
    pages = campaign_pages(read_history(LocalStore(tmp_path)))
    assert [page.name for page in pages] == ["campaign.html", "campaign-2.html"]
    assert [len(page.runs) for page in pages] == [RUNS_ON_A_PAGE, 1]
    assert pages[1].runs[0].started == began
