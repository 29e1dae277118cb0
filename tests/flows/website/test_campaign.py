"""The campaign and the search: pruned trials, pages of many runs, and an index in which everything is found."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from made_up_roots import artifact, chain, record, row_of

from flows.inspection.artifact_graph import read_graph
from flows.runner.recorded_runs import read_history
from flows.views.history_view import history_text
from flows.website.campaign import RUNS_ON_A_PAGE, campaign_pages, totals
from flows.website.render import render
from flows.website.scripts import index_files
from infra.site import Site
from infra.store.local import LocalStore


def entries(public: Path) -> list[list[str]]:
    files = sorted(public.glob("search-*.js"))
    return [
        entry for file in files for entry in json.loads(file.read_text().removeprefix("addEntries(").rstrip(");\n"))
    ]


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


def test_every_entry_of_the_index_leads_to_a_page(public: Path) -> None:
    assert {entry[0] for entry in entries(public)} >= {"model", "version", "run", "artifact"}
    for page in filter(None, (entry[3] for entry in entries(public))):
        path, _, fragment = page.partition("#")
        assert (public / path).is_file()
        assert not fragment or f'id="{fragment}"' in (public / path).read_text()


def test_artifacts_are_found_by_their_readable_names(tmp_path: Path) -> None:
    text, cleaned, *_ = chain(
        LocalStore(tmp_path), artifact(LocalStore(tmp_path), "download", "d0ffee", item="demo/train.de")
    )
    rows = [row_of(text, "demo/train.de"), row_of(cleaned)]
    for day, run in enumerate(("demo", "other"), start=1):
        record(tmp_path, run, datetime(2026, 1, day, tzinfo=UTC), rows)
    graph = read_graph(Site(root=tmp_path))
    (index,) = (file for _, file in index_files([], [], graph))
    titles = {
        title: words for kind, title, words, _ in json.loads(index[len("addEntries(") : -3]) if kind == "artifact"
    }
    assert titles.keys() >= {"demo/download/demo/train.de d0ffee", "demo/clean c0ffee", "average a0ffee"}
    assert titles["demo/clean c0ffee"].endswith("other/clean")
