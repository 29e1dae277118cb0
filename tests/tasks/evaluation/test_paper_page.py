"""A run is compared with the paper only if corpus, set and protocol are the paper's."""

import re
from dataclasses import replace
from typing import Any

import pytest

from model.config import count_parameters
from model.config.paper_models import BASE, TABLE_3
from tasks.evaluation.paper_figures import DEV, PEERS, ROWS
from tasks.evaluation.paper_page import render, row_cells
from tasks.evaluation.paper_row import PaperComparison, PaperRow, compare_to_paper

ROW = PaperRow("base", "wmt14-ende", 1, True, DEV, BASE, 37_000, 1)
TRAINING = {"updates": 100_000, "target_tokens": 2_500_000_000, "seconds": 7_200.0, "parameters": 63_082_496}


def card(sentences: int = 3_000) -> dict[str, Any]:
    scores = {"bleu_paper": (26.0, 25.2, 26.8), "bleu_paper_untweaked": (25.5, 24.7, 26.3), "bleu": (25.1, 24.3, 25.9)}
    scores_by_name = {
        name: {"score": score, "low": low, "high": high, "protocol": name}
        for name, (score, low, high) in scores.items()
    }
    return {"sentences": sentences, "perplexity": 4.9, "scores": scores_by_name}


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if "parameters" in row.figures])
def test_the_paper_s_parameters_are_those_of_its_row_s_model(name: str) -> None:
    size = 35_500 if name == "big" else 41_000
    assert abs(count_parameters(TABLE_3[name][0], size, size) - ROWS[name].figures["parameters"]) < 1e6


def test_bleu_is_compared_with_the_paper_s_within_one_protocol_alone() -> None:
    english_german = card()
    cells = row_cells("base", compare_to_paper(ROW, TRAINING, english_german))
    assert (cells["BLEU, paper"], cells["by protocol"], cells["differs by"]) == ("25.8", "paper", "+0.20")
    assert cells["BLEU, ours, that protocol"] == "26.00 (25.20–26.80)"
    assert cells["BLEU, ours, paper_untweaked"] == "25.50 (24.70–26.30)"
    del english_german["scores"]["bleu_paper"]
    untweaked = compare_to_paper(ROW, TRAINING, english_german)
    assert untweaked.differences == {}, "neither paper_untweaked nor 13a stands in for the protocol paper"
    assert row_cells("base", untweaked)["BLEU, ours, that protocol"] == ""


@pytest.mark.parametrize(
    ("changed", "sentences"), [({"exact": False}, 3_000), ({"set_name": "newstest2014"}, 3_000), ({}, 2_737)]
)
def test_another_setting_set_or_size_is_not_compared(changed: dict[str, Any], sentences: int) -> None:
    line = compare_to_paper(replace(ROW, **changed), TRAINING, card(sentences))
    assert line.differences == {}
    assert row_cells("base", line)["differs by"] == ""
    assert line.ours["bleu_paper"] == 26.0


def test_hours_sum_over_ranks_and_name_the_device() -> None:
    line = compare_to_paper(ROW, TRAINING | {"ranks": 8, "device": "cuda"}, card())
    assert line.ours["hours"] == pytest.approx(16)
    assert "16.00 GPU" in row_cells("base", line).values()
    assert "2.00" in row_cells("base", compare_to_paper(ROW, TRAINING, card())).values(), (
        "a training whose facts name no device"
    )


def test_pages_hold_every_cell_and_escape_text() -> None:
    evil = "train failed: <b>|</b>"
    lines = [compare_to_paper(ROW, TRAINING, card()), PaperComparison(replace(ROW, row="A1"), {"set": DEV}, evil)]
    html, text = (render(f"paper_page.{form}", "demo & more", lines) for form in ("html", "md"))
    for cell in filter(None, row_cells("base", lines[0]).values()):
        assert cell in text
        assert cell.replace("'", "&#39;") in html
    assert "demo &amp; more" in html
    assert "<b>|" not in html
    assert evil in text
    assert not re.search(r"https?://|url\(|@import|<script", html)
    for peer in PEERS:
        assert peer.bleu in html
        assert peer.system in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({row.count(" | ") for row in rows[:4]}) == 1
