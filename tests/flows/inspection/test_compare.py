"""Runs and versions are compared by their score artifacts."""

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from small_pipeline import run_small

from flows.inspection.compare import collapse_curves, compare_systems, find_system
from flows.runner.request import RunRequest
from flows.views.tables import collapse_table
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.local import Store
from tasks.evaluation.collapse import last_values
from tasks.evaluation.compare import page
from tasks.evaluation.pictures import layers_picture

OTHER = RunRequest("small", overrides=("decoding.beam=1",))


def test_a_run_and_versions_are_compared_on_every_set(small: Path) -> None:
    site = Site.named()
    first = find_system("small/1", site)
    run_small(OTHER)
    second, newest = find_system("small/2", site), find_system("small", site)
    assert newest.scores == second.scores != first.scores
    comparisons = compare_systems(first, second, site)
    assert [comparison.name for comparison in comparisons] == ["dev", "test"]
    for comparison in comparisons:
        bleu = comparison.differences[0]
        cards = [
            json.loads((Store(site.root).folder("score", s.scores[comparison.name].key) / "card.json").read_text())
            for s in (first, second)
        ]
        assert [bleu.a, bleu.b] == pytest.approx([card["scores"]["bleu"]["score"] for card in cards], abs=1e-4)
        assert comparison.sentences == 12


def test_trainings_are_compared_by_their_layers(small: Path) -> None:
    curves = collapse_curves(find_system("small/1", Site.named()), Site.named())
    last = last_values(curves)
    assert {"encoder_cosine", "decoder_cosine", "encoder_norm", "attention_entropy"} <= last.keys()
    shown = io.StringIO()
    Console(file=shown, width=120).print(collapse_table(last, {}))
    assert "entropy of a query's cross-attention" in shown.getvalue()
    picture = layers_picture({"A: small/1": curves, "B: older": {}})
    assert picture
    assert picture.light in page("small/1", "older", [], picture)


def test_missing_scores_are_named(small: Path) -> None:
    site = Site.named()
    with pytest.raises(BadConfiguration, match="'smal' has no artifact of score here"):
        find_system("smal", site)
    key = find_system("small/1", site).scores["dev"].key
    folder = Store(site.root).folder("score", key)
    shutil.move(folder, folder.with_name("elsewhere"))
    try:
        with pytest.raises(BadConfiguration, match=f"needs .*{key}, but that artifact is missing"):
            find_system("small/1", site)
    finally:
        shutil.move(folder.with_name("elsewhere"), folder)
