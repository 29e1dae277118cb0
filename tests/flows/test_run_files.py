"""A file of runs can import modules beside it, also in worker processes; they never shadow other modules."""

import os
import subprocess
import sys
from pathlib import Path

RULES = """
import random
from dataclasses import dataclass
from tasks.cleaning.filters import Filters

@dataclass(frozen=True)
class Even:
    size: int

    def kept(self) -> list[int]:
        return [n for n in range(self.size) if n % 2 == 0]
"""
RUNS = """
from dataclasses import replace
from flows.runs import DEMO
from my_rules import Even
MINE = replace(DEMO, about=f"{Even(5).kept()}")
"""
PROGRAM = """
import sys
from flows.runner.request import RunRequest
from infra.processes.workers import executor

if __name__ == "__main__":
    run = RunRequest("mine/my_runs.py:MINE").resolve().run
    import my_rules
    with executor(2) as workers:
        assert list(workers.map(my_rules.Even.kept, [(my_rules.Even(5),)] * 3)) == [[0, 2, 4]] * 3
    print(run.about)
"""


def test_a_run_file_imports_its_neighbours_and_they_shadow_nothing(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (tmp_path / "bin").mkdir()
    mine.mkdir()
    (mine / "my_runs.py").write_text(RUNS)
    (mine / "my_rules.py").write_text(RULES)
    for name in ("random", "model", "tasks", "flows", "infra"):
        (mine / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the run file')")
    program = tmp_path / "bin" / "program.py"  # as the command `repro` begins: its own folder on the path, no other
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, program], cwd=tmp_path, env={**os.environ}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 2, 4]\n"
