"""The class of an error decides whether Prefect retries, after growing pauses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from services import TIMEOUT_SECONDS, Services, wait_for

from flows.reproduce import STAGES

pytestmark = pytest.mark.slow
SUPPORT = Path(__file__).parents[1] / "support"
PAUSE = 0.5
RETRIED = ("NetworkFault", "DiskFault", "Preempted", "JobFailed")
NOT_RETRIED = ("BadConfiguration", "BadData", "OutOfMemory", "NoSpace", "Diverged", "ValueError", "MemoryError")
SCRIPT = f"""
import builtins, importlib, json, sys, time
from pathlib import Path
sys.path.insert(0, {str(SUPPORT)!r})
from prefect import flow
from flows.reproduce import STAGES
from infra import errors as faults
from infra.site import Site
from infra.store.local import LocalStore
from tasks.engine import prefect_runner
from tasks.engine.planner import Scope
from tasks.engine.run_settings import RunSettings
from tasks.engine.stage import StageCall, stage
from toy_stages import Quiet, Untracked

prefect_runner.FIRST_PAUSE_SECONDS = {PAUSE}
tries = {{name: [] for name in sys.argv[2:]}}

@stage(version=1)
def failing(out: Path, what: str):
    return {{}}

def try_every_stage(runner):
    for name in STAGES:
        every = getattr(importlib.import_module(f"tasks.stages.{{name}}"), name)
        tries[name] = []
        kinds = iter((faults.NetworkFault, faults.BadData))
        def fail(out, what):
            tries[name].append(time.monotonic())
            raise next(kinds)("on purpose")
        every.body = fail
        try:
            runner.resolve(StageCall(every, "", {{"what": name}}))
        except faults.BadData:
            continue
        raise AssertionError(f"{{name}} was not tried again")

@flow(name="reproduce", flow_run_name="tried")
def tried():
    root = Path(sys.argv[1])
    settings = RunSettings(LocalStore(root), Site(root=root), Scope(("failing",)), Quiet(), Untracked())
    runner = prefect_runner.PrefectRunner(settings)
    for name, moments in tries.items():
        kind = getattr(faults, name, None) or getattr(builtins, name)
        def fail(out, what):
            moments.append(time.monotonic())
            raise kind("on purpose")
        failing.body = fail
        try:
            runner.resolve(StageCall(failing, name, {{"what": name}}))
        except kind:
            continue
        raise AssertionError(f"{{name}} was swallowed")
    try_every_stage(runner)
    runner.close()

tried()
print(json.dumps(tries))
"""


def test_only_transient_errors_are_retried_after_growing_pauses(services: Services, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, f"{tmp_path}", *RETRIED, *NOT_RETRIED]
    done = subprocess.run(command, env=services.environment(), capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stderr
    tries = json.loads(done.stdout.splitlines()[-1])
    assert {name: len(moments) for name, moments in tries.items()} == dict.fromkeys(RETRIED, 4) | dict.fromkeys(
        NOT_RETRIED, 1
    ) | dict.fromkeys(STAGES, 2), "every stage: tried again for a fault that may pass, and not for bad data"
    for name in RETRIED:
        pauses = [after - before for before, after in zip(tries[name], tries[name][1:], strict=False)]
        assert all(pause > 0.75 * PAUSE * 2**n for n, pause in enumerate(pauses)), (name, pauses)
    (flow_run,) = [each for each in services.flow_runs() if each["name"] == "tried"]
    wait_for(lambda: not services.task_runs(flow_run["id"], "RUNNING", "PENDING", "SCHEDULED"))
    states = {each["name"]: (each["state_name"], each["run_count"]) for each in services.task_runs(flow_run["id"])}
    expected = {f"failing {name}": ("Failed", 4) for name in RETRIED} | {
        f"failing {n}": ("Failed", 1) for n in NOT_RETRIED
    }
    expected |= dict.fromkeys(STAGES, ("Failed", 2))
    assert states == expected
