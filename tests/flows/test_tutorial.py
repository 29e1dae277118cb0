"""docs/tutorial.md, followed to its end: its commands in their order, by a shell in an empty folder, on real text."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import wait_for

from infra.servers.loopback import free_ports
from infra.service import lifecycle

TOP = Path(__file__).parents[2]
FENCED = re.compile(r"^(```+)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4,}(\S.*)$", re.MULTILINE)
LIMIT_SECONDS = 4 * 3600
"""Of the whole tutorial and of each command: four trainings, on a machine that is busy with others."""
AT_WORK = re.compile(r"^  train [1-9]\d*/")
"""Said by a training that counts its updates."""
CTRL_C = ("repro run my-run.toml", "repro run demo --set training.seed=2")
"""Commands that the tutorial lets end by Ctrl-C, the first time."""
SAYS = {
    "make demo": "demo/1",
    "repro run demo": "cached",
    "repro plan demo --set decoding.beam=8": "translate",
    "repro trace demo test:33": "test:33",
    "repro filters demo": "language ",
    "repro new my-run --source pairs.tsv:1 --target pairs.tsv:2": "held out 1,000 pairs",
    "repro plan my-run.toml": "train",
    "repro run my-run.toml --set training.updates=300": "my-run/1",
    'repro promote my-run/1 --why "to see the whole way"': "my-run@champion is my-run/1",
    "repro deploy demo --activate": "0 3 * * * active",
    'repro deploy demo --cron "* * * * *"': "* * * * * active",
    "repro deploy demo --pause": "* * * * * paused",
    "repro status": "repro run demo --set training.seed=2",
    "repro run demo --set training.seed=2": "demo/2",
    "repro models demo --sort test": "champion",
    "repro show demo@champion": "candidate",
    'repro promote demo/1 --why "read by two translators"': "demo/1",
    'echo "The old woman sees a dog." | repro translate --model demo@champion': "Frau",
}
"""What commands say when they have done what the tutorial is there for."""


def steps() -> Iterator[str]:
    """The lines of the tutorial's code; a block of Python is one."""
    for piece in re.split(r"(^```python\n.*?^```$)", (TOP / "docs" / "tutorial.md").read_text(), flags=re.M | re.S):
        if piece.startswith("```python"):
            code = piece.removeprefix("```python\n").removesuffix("```")
            yield f"python - <<'END'\n{code}END"
        else:
            yield from code_lines(piece)


def code_lines(page: str) -> list[str]:
    """The lines of a page's code blocks, fenced or indented; one that a backslash continues is one line."""
    page = re.sub(r" *\\\n *", " ", page)
    fenced = [line.strip() for _, block in FENCED.findall(page) for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in (*fenced, *INDENTED.findall(FENCED.sub("", page)))]


class Shell:
    """bash in an empty folder, in which the project's programs are found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefect, self.mlflow = free_ports(2)

    def here(self, line: str) -> str:
        """The line with what differs here: the environment is set up already, and the usual ports may be taken."""
        return {
            "make demo": "repro run demo",
            ". .venv/bin/activate": "true",
            "repro up": f"repro up --prefect-port {self.prefect} --mlflow-port {self.mlflow}",
            "repro serve demo@champion": "repro serve demo@champion --port 0",
        }.get(line, line)

    def start(self, line: str) -> subprocess.Popen[str]:
        programs = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", self.here(line)],
            cwd=self.folder,
            env=os.environ | programs,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, line: str) -> str:
        process = self.start(line)
        said, _ = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == 0, f"{line}\n{said}"
        assert "Traceback" not in said, f"{line}\n{said}"
        return said

    def run_until(self, line: str, sign: str) -> tuple[int, str]:
        """Run it and press Ctrl-C at the first line with the sign; gives the exit code and what it said."""
        process, said = self.start(line), ""
        assert process.stdout
        for each in process.stdout:
            said += each
            if re.search(sign, each):
                os.killpg(process.pid, signal.SIGINT)
                break
        rest, _ = process.communicate(timeout=300)
        return process.returncode, said + rest


@pytest.fixture
def shell(real_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.delenv("REPRO_ROOT")
    monkeypatch.setenv("REPRO_THREADS", "1")  # others use the cores too
    yield Shell(tmp_path)
    lifecycle.down(tmp_path / ".repro" / "service", print)


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS)
def test_the_tutorial_does_what_it_says(shell: Shell) -> None:
    interrupted = set()
    for line in steps():
        print(f"$ {line}", flush=True)
        if line in CTRL_C and line not in interrupted:
            interrupted.add(line)
            code, said = shell.run_until(line, AT_WORK)
            assert code == 130, f"{line}\n{said}"
            assert "Repeat the same command to resume" in said
        elif line == "repro history demo":
            wait_for_a_scheduled_run(shell)
            assert "cached" in shell.run(line)
        elif line == "repro serve demo@champion":
            ask_the_page(shell, line)
        else:
            said = shell.run(line)
            assert SAYS.get(line, "") in said, f"{line}\n{said}"
    assert interrupted == {*CTRL_C}


def wait_for_a_scheduled_run(shell: Shell) -> None:
    """Wait until one more run of demo is finished than before."""
    before = finished(shell)
    wait_for(lambda: finished(shell) > before)


def finished(shell: Shell) -> int:
    """How many starts of the run demo are finished."""
    said = subprocess.run(
        [Path(sys.executable).parent / "repro", "history", "demo", "--json"],
        cwd=shell.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [each["outcome"] for each in json.loads(said.stdout)["runs"]].count("FINISHED")


def ask_the_page(shell: Shell, line: str) -> None:
    """Open the link that ``repro serve`` prints, translate a sentence there, and stop it."""
    process = shell.start(line)
    assert process.stdout
    link = next(each.strip() for each in process.stdout if each.startswith("http://"))
    with urllib.request.urlopen(link) as page:
        assert "<html" in page.read().decode()
    question = json.dumps({"text": "The old woman sees a dog.", "model": "demo@champion"}).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{link}/api/translate", question, headers)) as answer:
        assert "Frau" in answer.read().decode()
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
