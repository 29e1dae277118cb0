"""prefect.yaml holds a deployment for every run but Table 3's, one for its rows and one for a stage; none is active."""

import importlib
from pathlib import Path
from typing import get_args

import yaml

from flows.deployment import SiteName
from flows.paper import PaperRequest
from flows.running import Request
from flows.runs import RUNS, VARIATIONS
from infra.site import SITES

HOUSE = Path(__file__).resolve().parents[2]


def test_every_run_has_a_deployment() -> None:
    *deployments, stage = yaml.safe_load((HOUSE / "prefect.yaml").read_text())["deployments"]
    assert [each["name"] for each in deployments] == [*(name for name in RUNS if name not in VARIATIONS), "paper"]
    assert stage["entrypoint"] == "flows.deployment.stage"
    assert stage["name"] == stage["work_pool"]["name"] == "gpu"
    assert not stage["schedules"]
    for each in deployments:
        module, _, function = each["entrypoint"].rpartition(".")
        assert hasattr(importlib.import_module(module), function)
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
        assert schedule["slug"], "known again by it when the file is deployed a second time"
        assert schedule["active"] is False
        assert "concurrency_limit" not in each, "Prefect ends the run that holds one when its server is restarted"


def test_the_form_offers_every_site() -> None:
    assert set(get_args(SiteName)) == set(SITES)
