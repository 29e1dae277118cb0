"""A process is known by more than its number; what cannot be known is not guessed."""

import subprocess
import sys

import pytest

from infra.processes.identity import identity, life


def test_a_process_is_alive_until_it_is_killed_and_gone_even_before_it_is_reaped() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    word = identity(process.pid)
    assert life(word) == "alive"
    assert life(identity()) == "alive"
    process.kill()
    process.stdin and process.stdin.close()
    while life(word) == "alive":
        pass
    assert life(word) == "gone"
    process.wait()
    assert life(word) == "gone"
    with pytest.raises(ProcessLookupError):
        identity(process.pid)


def test_the_same_number_given_again_is_another_process() -> None:
    *same, started = identity().split("/")
    assert life("/".join([*same, f"{int(started) + 1}"])) == "gone"


def test_another_boot_ended_all_and_other_machines_and_containers_are_not_judged() -> None:
    machine, boot, namespace, pid, started = identity().split("/")
    assert life("/".join((machine, "another-boot", namespace, pid, started))) == "gone"
    for unknown in ((f"{machine}x", boot, namespace), (f"{machine}x", "another", namespace), (machine, boot, "1")):
        assert life("/".join((*unknown, pid, started))) == "elsewhere"
    for broken in ("", "word", "a/b/c/d/e", identity() + "/more"):
        assert life(broken) == "elsewhere"
