"""prefect.yaml holds a deployment for every run but Table 3's, and one for its rows; schedules are there and paused."""

from pathlib import Path

import yaml

from flows.paper import PaperRequest
from flows.running import Request
from flows.runs import RUNS, VARIATIONS

HOUSE = Path(__file__).resolve().parents[2]


def test_every_run_has_a_deployment() -> None:
    deployments = yaml.safe_load((HOUSE / "prefect.yaml").read_text())["deployments"]
    assert [each["name"] for each in deployments] == [*(name for name in RUNS if name not in VARIATIONS), "paper"]
    for each in deployments:
        path, _, function = each["entrypoint"].partition(":")
        assert f"def {function}(" in (HOUSE / path).read_text()
        if each["name"] == "paper":
            requests = PaperRequest(**each["parameters"]).requests()
            assert {f"wmt14-ende-{row}" for row in requests} > set(VARIATIONS)
            request = requests["base"]
        else:
            request = Request(**each["parameters"])
        run, site, _ = request.resolve()
        assert run.name == each["name"] or each["name"] == "paper"
        assert site.device == ("cuda" if each["work_pool"]["name"] == "gpu" else "auto")
        (schedule,) = each["schedules"]
        assert schedule["cron"]
        assert schedule["active"] is False
        assert each["concurrency_limit"]["limit"] == 1
