"""A process identity is more than a process id; the state of an unknown process is not guessed."""

import subprocess
import sys

import pytest

from infra.processes.identity import process_identity, process_state


def test_a_killed_process_is_gone_even_before_it_is_reaped() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = process_identity(process.pid)
    assert process_state(identity) == "alive"
    assert process_state(process_identity()) == "alive"
    process.kill()
    process.stdin and process.stdin.close()
    while process_state(identity) == "alive":
        pass
    assert process_state(identity) == "gone"
    process.wait()
    assert process_state(identity) == "gone"
    with pytest.raises(ProcessLookupError):
        process_identity(process.pid)


def test_a_reused_process_id_is_another_process() -> None:
    *same, started = process_identity().split("/")
    assert process_state("/".join([*same, f"{int(started) + 1}"])) == "gone"


def test_a_reboot_ends_all_and_other_machines_and_containers_are_unknown() -> None:
    machine, boot, namespace, pid, started = process_identity().split("/")
    assert process_state("/".join((machine, "another-boot", namespace, pid, started))) == "gone"
    for unknown in ((f"{machine}x", boot, namespace), (f"{machine}x", "another", namespace), (machine, boot, "1")):
        assert process_state("/".join((*unknown, pid, started))) == "elsewhere"
    for broken in ("", "identity", "a/b/c/d/e", process_identity() + "/more"):
        assert process_state(broken) == "elsewhere"
