"""A process identity is more than a process id; unknown processes are not guessed about."""

import subprocess
import sys

import pytest

from infra.processes.identity import process_identity, process_state


def test_a_process_is_alive_until_it_is_killed_and_gone_even_before_it_is_reaped() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    word = process_identity(process.pid)
    assert process_state(word) == "alive"
    assert process_state(process_identity()) == "alive"
    process.kill()
    process.stdin and process.stdin.close()
    while process_state(word) == "alive":
        pass
    assert process_state(word) == "gone"
    process.wait()
    assert process_state(word) == "gone"
    with pytest.raises(ProcessLookupError):
        process_identity(process.pid)


def test_the_same_number_given_again_is_another_process() -> None:
    *same, started = process_identity().split("/")
    assert process_state("/".join([*same, f"{int(started) + 1}"])) == "gone"


def test_another_boot_ended_all_and_other_machines_and_containers_are_not_judged() -> None:
    machine, boot, namespace, pid, started = process_identity().split("/")
    assert process_state("/".join((machine, "another-boot", namespace, pid, started))) == "gone"
    for unknown in ((f"{machine}x", boot, namespace), (f"{machine}x", "another", namespace), (machine, boot, "1")):
        assert process_state("/".join((*unknown, pid, started))) == "elsewhere"
    for broken in ("", "word", "a/b/c/d/e", process_identity() + "/more"):
        assert process_state(broken) == "elsewhere"
