"""``decoding.ensemble``: the models of several seeds in one run, each scored, and their ensemble beside them."""

import json
from pathlib import Path
from statistics import mean, stdev

import polars as pl
import pytest
from small_models import translated
from small_pipeline import run_small

from flows.runner.outcome import Outcome
from flows.runner.request import RunRequest, plan
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from model.config import Decoding
from model.decoding.translator import Translator
from model.network.weights import load_model
from tasks.evaluation.seed_spread import item_of

SEVERAL = ("decoding.ensemble=3,1,2",)


def keys(outcome: Outcome) -> dict[tuple[str, str], str]:
    return {(row.stage, row.item): row.key for row in outcome.rows}


def test_the_runs_own_model_keeps_its_artifacts_and_each_seed_is_as_a_run_of_its_own() -> None:
    alone, several = keys(plan(RunRequest("demo"))), keys(plan(RunRequest("demo", overrides=SEVERAL)))
    assert {of for of in alone if several[of] != alone[of]} == {("report", ""), ("register", "")}
    further = ["seed-3", "seed-2"]
    assert {of for of in several if of not in alone} == {
        *(("train", each) for each in further),
        *(("average", each) for each in further),
        *(
            (stage, f"{s}/{each}")
            for stage in ("translate", "score")
            for s in ("dev", "test")
            for each in (*further, "ensemble")
        ),
    }
    seed_3 = keys(plan(RunRequest("demo", overrides=("training.seed=3",))))
    for stage, item in (("train", ""), ("average", ""), ("translate", "test"), ("score", "test")):
        assert several[stage, item_of(item, "seed-3").strip("/")] == seed_3[stage, item]
    ordered = keys(plan(RunRequest("demo", overrides=("decoding.ensemble=1,2,3",))))
    other_seed = keys(plan(RunRequest("demo", overrides=("decoding.ensemble=1,2,3", "training.seed=2"))))
    ensemble = ("translate", "test/ensemble")
    assert several[ensemble] == ordered[ensemble] == other_seed[ensemble]


def test_impossible_lists_of_seeds_are_named() -> None:
    several, own = "nothing, or two or more different whole numbers", "seeds with training.seed, 1, among them"
    for value, allowed in (("1", several), ("1,1", several), ("1,-2", several), ("2,3", own)):
        with pytest.raises(BadConfiguration, match=rf"decoding.ensemble is \(.*\), allowed is {allowed}"):
            RunRequest("demo", overrides=(f"decoding.ensemble={value}",)).resolve()


@pytest.mark.slow
def test_the_ensemble_of_a_runs_seeds_is_translated_scored_and_reported(small: Path) -> None:
    outcome = run_small(RunRequest("small", overrides=("decoding.ensemble=1,2",)))
    made = {(row.stage, row.item): Path(row.path) for row in outcome.rows}
    states = {(row.stage, row.item): row.state for row in outcome.rows}
    assert states["train", ""] == states["score", "test"] == "cached"
    one = Translator.load(made["average", ""], made["learn_bpe", ""], "cpu")
    ensemble = Translator(one.model, one.vocabulary, one.device, [load_model(made["average", "seed-2"])])
    pairs = pl.read_parquet(made["prepare_sets", "test"] / "pairs.parquet")
    expected = [each.text for each in translated(ensemble, pairs["source"].to_list(), Decoding(beam=2, max_extra=3))]
    written = pl.read_parquet(made["translate", "test/ensemble"] / "hypotheses.parquet")
    assert written["hypothesis"].to_list() == expected
    spreads = {(s.set_name, s.measure): s for s in outcome.seed_spreads(1)}
    chrf = spreads["test", "chrf"]
    assert chrf.ensemble == outcome.scores["test/ensemble"]["chrf"]
    card = json.loads((made["score", "test/ensemble"] / "card.json").read_text())
    assert card["set"] == "test"
    page = (made["report", ""] / "report.html").read_text()
    for value in (*chrf.values.values(), mean(chrf.values.values()), stdev(chrf.values.values()), chrf.ensemble):
        assert f'<td class="score">{value:.2f}</td>' in page
    assert "Seeds and their ensemble" in page
    assert open_store(Site.named()).find("register", keys(outcome)["register", ""])
