"""The identity of a process that is gone."""

import subprocess
from functools import cache

from infra.processes.identity import process_identity


@cache
def dead_process() -> str:
    process = subprocess.Popen(["sleep", "60"])
    word = process_identity(process.pid)
    process.kill()
    process.wait()
    return word
