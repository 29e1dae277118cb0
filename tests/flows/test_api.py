"""``flows.api``: what scripts and notebooks call, on a finished root and without a server."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest
from small_pipeline import write_run_file

from flows import api
from flows.runs import RUNS
from infra.errors import BadConfiguration, BadData
from infra.processes import signals
from infra.processes.threads import run_in_threads

LINE = "The old woman sees a dog."
BLEU = ("dev_bleu", "test_bleu")


def test_runs_say_which_are_recorded(small: Path) -> None:
    found = api.runs()
    assert found["run"].to_list() == list(RUNS)
    assert found.filter("recorded")["run"].to_list() == ["small"]
    for path in (small / "runs" / "small").iterdir():
        path.write_text(path.read_text().replace('"run": "small"', '"run": "mine"'))
    assert api.runs().tail(1).rows() == [("mine", "", True)]


def test_a_plan_is_that_of_the_overrides(small: Path) -> None:
    assert set(api.plan("small")["state"]) == {"cached"}
    changed = api.plan("small", {"decoding.ensemble": (1, 2), "model.qkv_bias": False}, until="average")
    assert changed.filter(state="miss").select("stage", "item").rows() == [("train", "seed-2"), ("average", "seed-2")]
    with pytest.raises(BadConfiguration, match="unknown stage"):
        api.plan("small", force=["trian"])


@pytest.mark.parametrize(("function", "part"), [("plan", "make_plan"), ("scores", "find_system")])
def test_an_interrupted_call_does_not_end_the_next(
    function: str, part: str, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del small
    interrupt = Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr(api, part, lambda *_: run_in_threads([interrupt], 1, "call"))
        getattr(api, function)("small")
    signals.check()
    assert set(api.plan("small")["state"]) == {"cached"}


def test_scores_curves_and_sentences_of_a_run_and_a_version(small: Path) -> None:
    card = api.scores("small")
    assert card.equals(api.scores("small@champion"))
    bleu = card.filter(metric="bleu")
    assert bleu["set"].to_list() == ["dev", "test"]
    assert (bleu["low"] <= bleu["score"]).all()
    assert bleu["score"].to_list() == [pytest.approx(api.versions()[column][0], abs=0.01) for column in BLEU]
    trained = api.curves("small")
    assert trained.equals(api.curves("small/1"))
    assert trained["update"].to_list() == sorted(set(trained["update"]))
    assert trained.filter(update=120)["dev_perplexity"][0] == api.artifact("small/train").facts["dev_perplexity"]
    assert trained["loss"].drop_nulls().len() > 0
    read = api.sentences("small")
    assert read.group_by("set").len()["len"].to_list() == [12, 12]
    assert api.sentences("small/1").equals(read)
    with pytest.raises(BadConfiguration, match="'smal'"):
        api.scores("smal/1")
    with pytest.raises(BadConfiguration, match="allowed are overrides of a run"):
        api.curves("small/1", {"training.seed": 2})


def test_translations_and_attention_are_those_of_the_version(small: Path) -> None:
    served = api.load("small")
    found = api.translate([f"{LINE} A man runs.", "", LINE], served, n_best=2)
    assert found["number"].to_list() == [0, 0, 1, 2, 2]
    alone = api.translate([LINE, "A man runs."], "small/1", n_best=2).filter(rank=1)
    assert found["hypothesis"][0] == " ".join(alone["hypothesis"])
    assert found["score"][0] == pytest.approx(alone["score"].sum())
    assert found["score"][0] >= found["score"][1]
    with pytest.raises(BadConfiguration, match="allowed is a list of texts"):
        api.translate("one text")
    with pytest.raises(BadConfiguration, match="n_best is 4"):
        api.translate([LINE], served, n_best=4)
    with pytest.raises(BadData, match="text 1"):
        api.translate([LINE, "dog " * 4_000], served)
    maps = api.attention(LINE, served)
    assert maps["cross"].weights.shape == (1, 2, len(maps["cross"].rows), len(maps["cross"].columns))
    assert np.allclose(maps["encoder"].weights.sum(-1), 1, atol=1e-5)
    assert api.attention(LINE, served, target="Die Frau.")["cross"].rows != maps["cross"].rows


def test_an_artifact_is_one(small: Path) -> None:
    assert pl.read_parquet(api.artifact("small/clean").path() / "rejected.parquet").columns[-1] == "filter"
    with pytest.raises(BadConfiguration, match="small/score/dev, small/score/t"):
        api.artifact("small/score")


NOTEBOOK = """
import asyncio, sys
import prefect  # before anything of this project, and with an event loop running, as in a notebook
from flows import api
async def cell():
    return api.run(sys.argv[1], until="clean"), api.run(sys.argv[1], until="clean")
first, second = asyncio.run(cell())
print(set(first["state"]), set(second["state"]))
"""


@pytest.mark.slow
def test_a_notebook_runs_stages_with_a_server_of_its_own(tmp_path: Path) -> None:
    run = f"{write_run_file(tmp_path / 'mine.py', tmp_path / 'mirror')}:SMALL"
    environment = os.environ | {"REPRO_ROOT": f"{tmp_path / 'root'}", "REPRO_MIRRORS": f"{tmp_path / 'mirror'}"}
    environment["HOME"] = f"{tmp_path / 'home'}"
    command = [sys.executable, "-c", NOTEBOOK, run]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "{'completed'} {'cached'}\n"), done.stderr
    assert (tmp_path / "root" / "prefect" / "prefect.db").is_file()
    assert not (tmp_path / "home" / ".prefect" / "prefect.db").exists()
    assert "clean" in done.stderr, "progress is shown"
