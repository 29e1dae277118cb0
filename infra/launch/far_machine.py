"""Runs commands and copies files on another machine with ``ssh`` and ``rsync``; a failure is one sentence.

The user's ``~/.ssh/config`` applies: aliases, ports, keys, jump hosts, shared connections.
"""

import math
import shlex
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass

from infra.errors import BadConfiguration, Fault, NetworkFault, NoSpace
from infra.processes import signals
from infra.processes.children import die_with_parent

CONNECTION = ("-oBatchMode=yes", "-oConnectTimeout=15", "-oServerAliveInterval=10", "-oServerAliveCountMax=3")
ANSWER_SECONDS = 90.0
PAUSES = (1.0, 5.0, 20.0, 60.0)
"""Pauses in seconds before a copy is retried after a broken connection."""
STEP_SECONDS = 0.1
NO_CONNECTION = 255
VANISHED = 24
"""rsync's status if a file was removed during the copy, for example an old checkpoint."""
BROKEN = (10, 12, 30, 35, NO_CONNECTION)
"""rsync's statuses for a broken connection."""
REFUSALS = ("Permission denied (", "Host key verification failed")


@dataclass(frozen=True)
class FarMachine:
    """A machine that ``ssh HOST`` reaches without prompting. Every method raises NetworkFault if it is unreachable,
    NoSpace if a disk is full, and otherwise BadConfiguration with the last error message."""

    host: str
    options: tuple[str, ...] = ()
    """Additional options of ssh. They precede ``CONNECTION`` and so override it."""

    def run(self, script: str) -> str:
        """Run a shell script there, which no signal interrupts, and return its output."""
        words = ["ssh", *self.options, *CONNECTION, self.host, "sh -s"]
        status, output, complaints = self._call(words, script, ANSWER_SECONDS)
        if status:
            raise self._fault(complaints, status == NO_CONNECTION, self.host)
        return output

    def send(self, source: str, target: str, *options: str) -> None:
        """Copy a file or folder to that machine; an interrupted copy continues where it stopped."""
        words = [*options, "--partial-dir=.partial", source, f"{self.host}:{target}"]
        for pause in PAUSES:
            try:
                return self._copy(words, self.host)
            except NetworkFault:
                signals.wait(pause)
        return self._copy(words, self.host)

    def fetch(self, source: str, target: str, *options: str, limit: float = 0.0) -> None:
        """Copy a folder from that machine if it exists; with a ``limit`` in seconds no signal interrupts the copy."""
        self._copy([*options, f"{self.host}:{source}", target], "this machine", limit)

    def _copy(self, words: list[str], target: str, limit: float = 0.0) -> None:
        # modify-window: compare times to the nanosecond, because a job may write a file twice within a second.
        ssh = shlex.join(["ssh", *self.options, *CONNECTION])
        rsync = ["rsync", "-rtLs", "--modify-window=-1", "--timeout=60", "-e", ssh]
        status, _, complaints = self._call([*rsync, *words], "", limit)
        if status not in (0, VANISHED) and "change_dir" not in complaints:
            raise self._fault(complaints, status in BROKEN, target)

    def _call(self, words: list[str], text: str, limit: float) -> tuple[int, str, str]:
        """Return a program's status, output and error output; without a ``limit`` in seconds a signal interrupts it."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        # In its own session Ctrl-C does not reach it, because the job must be cancelled first.
        apart = {"start_new_session": True, "preexec_fn": die_with_parent()}
        try:
            process = subprocess.Popen(words, text=True, errors="replace", **pipes, **apart)  # type: ignore[call-overload]
        except FileNotFoundError:
            raise BadConfiguration(f"the launcher is 'ssh', but this machine has no program {words[0]!r}") from None
        end = time.monotonic() + (limit or math.inf)
        given: str | None = text
        try:
            while time.monotonic() < end:
                with suppress(subprocess.TimeoutExpired):
                    output, complaints = process.communicate(given, STEP_SECONDS)
                    return process.returncode, output, complaints
                given = None
                if not limit:
                    signals.check()
            raise NetworkFault(f"{self.host} did not answer for {limit:.0f} s")
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def _fault(self, complaints: str, is_broken: bool, target: str) -> Fault:
        lines = [line.strip() for line in complaints.splitlines() if line.strip()]
        message = next((line for line in reversed(lines) if not line.startswith("rsync error")), "it gives no reason")
        if "No space left on device" in complaints or "Disk quota exceeded" in complaints:
            return NoSpace(f"no space left on {target}: {message}")
        refusals = [line for line in lines if any(refusal in line for refusal in REFUSALS)]
        if is_broken and refusals:
            return BadConfiguration(f"`ssh {self.host}` must work without a question, but says: {refusals[0]}")
        if is_broken:
            return NetworkFault(f"{self.host} cannot be reached by ssh: {message}")
        return BadConfiguration(f"{self.host}: {message}")
