"""The whole canary: deployed on a real Prefect server, run by a worker, one weight changed, the notification posted."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from listener import Listener
from services import FINAL_STATES, TIMEOUT_SECONDS, Services, request_json, wait_for
from small_pipeline import write_run_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
PLANT = """
from functools import wraps
from tasks.stages.average import average
body = average.body

@wraps(body)
def planted(out, *arguments, **named):
    facts = body(out, *arguments, **named)
    if (Path(__file__).parent / "planted").exists():
        weights = out / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1  # the lowest bit of the exponent of the last weight
        weights.write_bytes(content)
    return facts

average.body = planted
"""


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    made = Services(tmp_path)
    try:
        made.prefect.start()
        yield made
    finally:
        made.end()


def test_a_planted_change_of_one_weight_fails_the_nightly_run_and_is_posted(services: Services, tmp_path: Path) -> None:
    root, runs = tmp_path / "root", write_run_file(tmp_path / "my_runs.py", tmp_path / "mirror")
    runs.write_text(runs.read_text() + PLANT)

    def deploy(*words: str) -> str:
        process = services.repro(root, "deploy", *words)
        _, said = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, said
        return said

    def night() -> dict[str, str]:
        found = services.submit(request_json(f"{services.api}/deployments/name/canary/small")["id"])
        wait_for(lambda: services.flow_run(found)["state"]["type"] in FINAL_STATES, 900)
        state: dict[str, str] = services.flow_run(found)["state"]
        return state

    assert "canary/small: pool cpu, schedule nightly active" in deploy("--canary", f"{runs}:SMALL")
    assert "nightly paused" in deploy("--canary", f"{runs}:SMALL", "--pause")
    services.worker("cpu", REPRO_ROOT=f"{root}")
    with Listener.started() as listener:
        deploy("--notify", f"{listener.address}/hidden-word")
        first, second = night(), night()
        (tmp_path / "planted").touch()
        third = night()
        assert [first["type"], second["type"], third["type"]] == ["COMPLETED", "COMPLETED", "FAILED"], first
        assert "nothing is recorded of" in first["message"]
        assert "small is as recorded: model.safetensors of average is as recorded of" in second["message"]
        assert "small moved: model.safetensors of average differs from the record" in third["message"]
        assert third["message"].count("is average") == 1, "the first stage that moved, not one of the later ones"
        wait_for(lambda: len({post["id"] for post in listener.posts}) >= 3, 900)
        (told,) = {post["text"] for post in listener.posts if post["type"] == "prefect.flow-run.Failed"}
        assert third["message"] in told
    lines = [json.loads(line) for line in (root / "canary" / "small.jsonl").read_text().splitlines()]
    assert [bool(line["moved"]) for line in lines] == [False, False, True]
    assert not (root / "train").exists(), "the canary leaves the artifacts of the root alone"
    assert not (root / "mlflow.db").exists()
    assert subprocess.run(["ls", root / "canary" / "small"], capture_output=True, text=True).stdout.count("train") == 1
