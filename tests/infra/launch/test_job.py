"""The local launcher reports how a job ended and leaves no process behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from patience import wait_for

from infra.errors import BadData, JobFailed, OutOfMemory
from infra.launch.job import JobSpec
from infra.launch.local import LocalLauncher

GOOD = "import json, sys, pathlib; job = json.load(open(sys.argv[1])); out = pathlib.Path(job['out'])\n"


def job(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> JobSpec:
    (folder / "some_job.py").write_text(GOOD + code)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    # Else a job that is written over another one of its length and second would run the other's bytecode.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    out = folder / "out"
    out.mkdir(exist_ok=True)
    return JobSpec("some_job", {"size": 3}, {"text": folder}, out, {})


def exit_line(reason: str, message: str = "") -> str:
    return f"(out / 'exit.json').write_text(json.dumps({{'reason': {reason!r}, 'message': {message!r}}}))\n"


def test_a_job_reads_its_config_and_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "(out / 'seen').write_text(str(job['config']['size']) + job['inputs']['text'])\n" + exit_line("done")
    polls: list[int] = []
    LocalLauncher().run(job(tmp_path, code, monkeypatch), lambda: polls.append(1))
    assert (tmp_path / "out" / "seen").read_text() == f"3{tmp_path}"
    assert polls


def test_reasons_become_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadData, match="7 lines, not 8"):
        LocalLauncher().run(job(tmp_path, exit_line("bad_data", "7 lines, not 8") + "sys.exit(1)", monkeypatch), bool)
    with pytest.raises(OutOfMemory):
        LocalLauncher().run(job(tmp_path, exit_line("out_of_memory", "too large") + "sys.exit(1)", monkeypatch), bool)


def test_a_killed_job_is_reported_with_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "print('I was at update 7', flush=True); import os; os.kill(os.getpid(), 9)"
    with pytest.raises(JobFailed, match=r"signal 9 .*I was at update 7"):
        LocalLauncher().run(job(tmp_path, code, monkeypatch), bool)
    with pytest.raises(JobFailed, match="status 3"):
        LocalLauncher().run(job(tmp_path, "sys.exit(3)", monkeypatch), bool)


CHILDREN = (
    "import subprocess, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(900)'])\n"
    "(out / 'child').write_text(str(child.pid))\n"
)


def test_an_interrupt_ends_the_whole_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        if (tmp_path / "out" / "child").exists() and (tmp_path / "out" / "child").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LocalLauncher().run(job(tmp_path, CHILDREN + "time.sleep(60)", monkeypatch), interrupt)
    wait_for(lambda: has_ended(int((tmp_path / "out" / "child").read_text())), 1.0)


def test_a_killed_leader_leaves_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = CHILDREN + "import os; os.kill(os.getpid(), 9)"
    with pytest.raises(JobFailed, match="signal 9"):
        LocalLauncher().run(job(tmp_path, code, monkeypatch), bool)
    wait_for(lambda: has_ended(int((tmp_path / "out" / "child").read_text())), 1.0)


def test_a_job_ends_with_its_killed_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, time; (out / 'pid').write_text(str(os.getpid()) + ' '); time.sleep(900)"
    job(tmp_path, code, monkeypatch)
    starter = (
        "import pathlib; from infra.launch.job import JobSpec; from infra.launch.local import LocalLauncher\n"
        f"LocalLauncher().run(JobSpec('some_job', {{}}, {{}}, pathlib.Path({str(tmp_path / 'out')!r}), {{}}), bool)"
    )
    process = subprocess.Popen([sys.executable, "-c", starter], env={**os.environ})
    pid_file = tmp_path / "out" / "pid"
    while not (pid_file.exists() and pid_file.read_text().endswith(" ")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: has_ended(int(pid_file.read_text())), 1.0)


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_rank_that_a_signal_ended_is_named_by_the_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = "  traceback : Signal 9 (SIGKILL) received by PID 2969\n" + 60 * "="
    of_others = {"reason": "failed", "message": "Connection closed by peer"}
    for exit_ in ("", json.dumps(of_others)):
        write = f"open({f'{tmp_path}/exit.json'!r}, 'w').write({exit_!r}); " if exit_ else ""
        with pytest.raises(JobFailed, match=r"^some_job was killed by signal 9$"):
            LocalLauncher().run(job(tmp_path, f"{write}print({report!r}); sys.exit(1)\n", monkeypatch), lambda: None)
