"""prefect.yaml holds a deployment for every run but Table 3's, and one for its rows; none is active."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml
from prefect import Flow
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.utilities.callables import parameter_schema

from flows.commands.deploy import deploy as deploy_command
from flows.orchestration import check_flow, prefect_flows
from flows.orchestration import deploy as deploying
from flows.orchestration.flow_parts import SiteName
from flows.runner import interrupted
from flows.runner.paper import PaperRequest
from flows.runner.request import RunRequest
from flows.runs import RUNS, VARIATIONS
from infra.errors import BadConfiguration
from infra.site import SITES

REPOSITORY = Path(__file__).resolve().parents[3]


def test_runs_of_every_flow_are_closed_when_their_process_is_gone() -> None:
    modules = (prefect_flows, check_flow)
    flows = {each.name for module in modules for each in vars(module).values() if isinstance(each, Flow)}
    assert flows == set(interrupted.FLOWS)


def test_every_run_has_a_deployment() -> None:
    deployments = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]
    assert [each["name"] for each in deployments] == [*(name for name in RUNS if name not in VARIATIONS), "paper"]
    for each in deployments:
        module, _, function = each["entrypoint"].rpartition(".")
        assert hasattr(importlib.import_module(module), function)
        if each["name"] == "paper":
            rows = PaperRequest(**each["parameters"]).resolve().group.members
            assert {f"wmt14-ende-{row}" for row in rows} > set(VARIATIONS)
            resolved = rows["base"]
        else:
            resolved = RunRequest(**each["parameters"]).resolve()
        run, site = resolved.run, resolved.site
        assert run.name == each["name"] or each["name"] == "paper"
        assert site.device == ("cuda" if "paper" in each["tags"] else "auto")
        assert each["work_pool"]["name"] == ("gpu" if site.device == "cuda" else "cpu")
        (schedule,) = each["schedules"]
        assert schedule["cron"]
        assert schedule["slug"], "Prefect recognises a schedule by its slug when the file is deployed again"
        assert schedule["active"] is False
        assert "concurrency_limit" not in each, "Prefect ends the run that holds one when its server is restarted"


DEPLOY = """
import sys, yaml
from datetime import timedelta
from pathlib import Path
from flows.orchestration import deploy as deploying

def from_flow(cls, flow, name, **words):
    sys.exit(f"{flow.name} {words.get('job_variables')}")

deploying.RunnerDeployment.from_flow = classmethod(from_flow)
deploying._read_deployment = lambda client, label: None
deploying._deploy(None, yaml.safe_load(Path(sys.argv[1]).read_text())["deployments"][0], "as it is", print)
"""


def test_modules_of_the_working_folder_do_not_shadow_the_project(tmp_path: Path) -> None:
    """`repro deploy` ignores them, and sends no job variable, which a locked pool would refuse."""
    for name in ("flows", "tasks", "random"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the working folder')")
    words = [sys.executable, "-P", "-c", DEPLOY, str(REPOSITORY / "prefect.yaml")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1:] == ["reproduce None"]


def test_a_run_in_a_file_gets_a_deployment_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('extends = "demo"\n')
    made = deploying._deployment_of("mine.toml")
    assert (made["name"], made["parameters"]) == ("mine", {"run": f"{tmp_path}/mine.toml"})
    assert [each["active"] for each in made["schedules"]] == [False]
    Path("demo.toml").write_text('extends = "demo"\n')
    with pytest.raises(BadConfiguration, match="demo.toml is named 'demo' like a built-in run; rename it"):
        deploying.deployments_of(REPOSITORY / "prefect.yaml", ["demo.toml"])
    with pytest.raises(BadConfiguration, match=r"'dem'; did you mean .*demo.*\? known are: demo, .*FILE.toml"):
        deploying.deployments_of(REPOSITORY / "prefect.yaml", ["dem"])
    with pytest.raises(BadConfiguration, match=r"unknown deployment 'mine'; did you mean mine.toml\?"):
        deploying.deployments_of(REPOSITORY / "prefect.yaml", ["mine"])


def test_wrong_times_of_a_schedule_are_refused_and_right_ones_are_its_name() -> None:
    for times in ("0 22 * *", "0 25 * * *", "daily", "@daily at 3", "* * * * * *"):
        with pytest.raises(BadConfiguration, match="--cron"):
            deploying.own_times(times, "")
    for every in ("6", "6x", "0h", "-1d"):
        with pytest.raises(BadConfiguration, match="--every"):
            deploying.own_times("", every)
    made = deploying.own_times("", "6h")
    assert isinstance(made, IntervalSchedule)
    assert (made.interval.total_seconds(), made.timezone) == (6 * 3600, "UTC")
    assert deploying._in_words(made) == "every 6:00:00"
    assert deploying._in_words(CronSchedule(cron="0 3 * * *")) == "0 3 * * *"
    assert deploying._in_words(RRuleSchedule(rrule="FREQ=DAILY")) == "FREQ=DAILY"


def test_a_check_is_deployed_for_a_run_whose_results_are_recorded() -> None:
    made = deploying.check_of("demo")
    assert [each["active"] for each in made["schedules"]] == [False]
    module, _, function = made["entrypoint"].rpartition(".")
    assert getattr(importlib.import_module(module), function) is check_flow.check
    with pytest.raises(BadConfiguration, match="demo-distilled"):
        deploying.check_of("demo-distilled")
    with pytest.raises(BadConfiguration, match="--check"):
        deploy_command(check=True)


def test_the_forms_offer_every_site_and_explain_each_field_of_a_check() -> None:
    assert set(get_args(SiteName)) == set(SITES)
    fields = parameter_schema(check_flow.check).properties
    described = {name: field["description"].partition(".")[0] for name, field in fields.items()}
    assert described == {"run": "The name of a run with recorded results, such as demo", "site": "Where to compute"}


def test_settings_of_the_paper_are_checked_as_those_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.commands.deploy.server_configured", lambda: False)
    with pytest.raises(BadConfiguration, match="no Prefect server is configured"):
        deploy_command("paper", overrides=("training.updates=100",))
    with pytest.raises(BadConfiguration, match=r"training\.updatess"):
        deploy_command("paper", overrides=("training.updatess=100",))
