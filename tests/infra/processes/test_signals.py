"""A signal during shielded work is noted and raised in ``check``, never inside a library."""

import signal
import subprocess
import sys
import time

import pytest
from patience import limit

SCRIPT = """
import sys, time
from infra.processes import signals as interrupts

def polite():
    print("ready", flush=True)
    while True:
        interrupts.check()
        time.sleep(0.01)

def unresponsive():
    print("ready", flush=True)
    while True:
        time.sleep(0.01)

def swallowing():
    try:
        polite()
    except BaseException:
        return "finished"

interrupts.install_handlers()
import polars  # its own handler of SIGINT calls ours and then lets the kernel go on with a wait
try:
    work = {"polite": polite, "unresponsive": unresponsive, "swallowing": swallowing}[sys.argv[1]]
    interrupts.shielded(work, float(sys.argv[2]))
except KeyboardInterrupt:
    print("unwound")
    sys.exit(130)
"""


def start(*words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, *words], stdout=-1, stderr=-1, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("work", ["polite", "swallowing"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_work_that_checks_unwinds_and_the_exit_status_names_the_signal(work: str, number: int, status: int) -> None:
    process = start(work, "60")
    process.send_signal(number)
    said, complained = process.communicate(timeout=limit(2.0))
    assert process.returncode == status
    assert ("unwound" in said) == (number == signal.SIGINT)
    assert complained == ""


def test_work_that_never_checks_is_ended_after_the_timeout() -> None:
    process = start("unresponsive", "0.5")
    process.send_signal(signal.SIGTERM)
    _, complained = process.communicate(timeout=limit(2.0))
    assert process.returncode == 143
    assert "finished stages are kept" in complained


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_ends_at_once_and_a_second_stop_changes_nothing(first: int) -> None:
    process = start("unresponsive", "600")
    process.send_signal(first)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=limit(2.0))
    assert process.returncode == 128 + first
