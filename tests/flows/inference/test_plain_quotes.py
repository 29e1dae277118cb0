"""A version of a run with ``filters.normalise.quotes`` reads typographic quotes as plain ones, wherever it reads."""

import subprocess
import sys
from pathlib import Path

import mlflow
import pytest
from small_pipeline import run_small

from flows.inference.load_version import load_version
from flows.runner.request import RunRequest
from infra.site import Site
from infra.tracking.registry import resolve
from model.decoding.translation import Search

TYPED = "The „old“ woman sees a ‚dog‘, doesn’t she?"
QUOTES = "typographic quotes made plain"
PLAIN = "The \"old\" woman sees a 'dog', doesn't she?"


@pytest.mark.slow
def test_typed_quotes_are_read_as_in_training_by_the_version_that_was_trained_so(small: Path) -> None:
    outcome = run_small(RunRequest("small", overrides=("filters.normalise.quotes=true",)))
    assert outcome.model_version == "small/2"
    assert all(QUOTES in score["source_input"] for score in outcome.scores.values())
    site = Site.named()
    assert QUOTES in resolve(site.tracking, "small/2").tags["dev.source_input"]
    assert QUOTES not in resolve(site.tracking, "small/1").tags["dev.source_input"]
    for name, same in (("small/1", False), ("small/2", True)):
        served = load_version(resolve(site.tracking, name), site, "own")
        typed, plain = served.translate([TYPED, PLAIN], Search(served.decoding))
        assert (typed.sources == plain.sources) == same, "on the page"
        mlflow.set_tracking_uri(site.tracking)
        model = mlflow.pyfunc.load_model(f"models:/{name}").unwrap_python_model()
        typed_ids, plain_ids = model.model.translator.vocabulary.encode_source([TYPED, PLAIN])
        assert (typed_ids == plain_ids) == same, "in MLflow"
    command = [sys.executable, "-c", "from flows.cli import main; main()", "translate", "--model", "small/2"]
    done = subprocess.run(command, input=f"{TYPED}\n{PLAIN}\n", capture_output=True, text=True, check=True)
    assert len(set(done.stdout.splitlines())) == 1, "on the command line"
