"""A scheduled check: deployed run by a worker of a real Prefect server, one weight changed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import FINAL_STATES, TIMEOUT_SECONDS, Services, request_json, wait_for
from small_pipeline import write_run_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
PLANT = """
from functools import wraps
from flows.runs import RUNS, recorded_results
from tasks.stages.average import average
body = average.body
HERE = Path(__file__).parent

@wraps(body)
def planted(out, *arguments, **named):
    facts = body(out, *arguments, **named)
    if (HERE / "planted").exists():
        weights = out / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1  # the lowest bit of the exponent of the last weight
        weights.write_bytes(content)
    return facts

average.body = planted
RUNS["demo"] = replace(SMALL, name="demo")
recorded_results.EXPECTED = HERE / "expected.json"
"""
"""What every Python of the worker does at its start: the run demo is a small one, with a record of this test."""


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    made = Services(tmp_path)
    try:
        made.prefect.start()
        yield made
    finally:
        made.end()


def test_a_planted_change_of_one_weight_fails_the_nightly_check_and_is_posted(
    services: Services, tmp_path: Path
) -> None:
    root, start = tmp_path / "root", tmp_path / "start"
    start.mkdir()
    write_run_file(start / "sitecustomize.py", tmp_path / "mirror")
    (start / "sitecustomize.py").open("a").write(PLANT)
    (start / "expected.json").write_text('{"demo": {"scores": {}, "tolerance": {}}}')

    def deploy(*words: str) -> str:
        process = services.repro(root, "deploy", *words)
        _, said = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, said
        return said

    def night() -> dict[str, str]:
        found = services.submit(request_json(f"{services.api}/deployments/name/check/demo")["id"])
        wait_for(lambda: services.flow_run(found)["state"]["type"] in FINAL_STATES)
        state: dict[str, str] = services.flow_run(found)["state"]
        return state

    assert "0 1 * * * active" in deploy("demo", "--check", "--cron", "0 1 * * *")
    assert "0 1 * * * paused" in deploy("demo", "--check", "--pause")
    services.worker("cpu", REPRO_ROOT=f"{root}", PYTHONPATH=f"{start}")
    first = night()
    assert first["type"] == "COMPLETED", first
    kind = first["message"].partition("this is ")[2].removesuffix(")")
    (made,) = (root / "check" / "demo" / "average").glob("*/manifest.json")
    files = json.loads(made.read_text())["manifest"]["files"]
    sums = {"model.safetensors": files["model.safetensors"]["sha256"]}
    known = {"scores": {}, "tolerance": {}, "digests": {kind: {"average": sums}}}
    (start / "expected.json").write_text(json.dumps({"demo": known}))
    (start / "planted").touch()
    second = night()
    assert second["type"] == "FAILED"
    assert "model.safetensors of average differs" in second["message"]
    assert not (root / "train").exists(), "a check leaves the artifacts of the root alone"
    assert not (root / "mlflow.db").exists()
