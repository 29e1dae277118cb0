"""The lines of the documentation, run by bash as the pages have them, in a folder of small runs; each command is in
one of the tables of ``documented_states.py``."""

import re
import shlex
from collections.abc import Iterator

import pytest
from documented_commands import TOP, DocumentedCommand, code_lines, commands_in, documented_commands, files
from documented_states import lines, state
from documented_tables import CANNOT, ELSEWHERE, WITH_VARIABLES
from documented_world import PREPARED, World

PORT = """$(python -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')"""
INSTEAD = {
    "repro serve --quantization int8": "repro serve --quantization int8 --port 0",
    "repro serve demo@champion demo/1 --port 9000": "repro serve demo@champion demo/1 --port 0",
    "repro serve": "repro serve --port 0",
    "repro restore .repro/backups/<time>": "repro restore $(ls -d .repro/backups/* | head -1)",
}
"""What is run here in place of a line: another port, a time that is known."""
FRONT = {"repro adopt": "REPRO_ROOT=other", "mlflow": "env MLFLOW_TRACKING_URI=sqlite:///.repro/mlflow.db"}
"""Variables in front: what is adopted exists in the root already, MLflow needs an export of `repro env`."""
SMALLER = {
    "preparation.py": "--pairs 40000 --threads 1 --rounds 1",
    "readiness.py": "--pairs 3000",
    "scheduled_runs.py": "--runs 2 --minutes 0.5",
    "large_root.py": "--artifacts 50 --records 5 --repeat 1",
    "mlflow": f"--port {PORT}",
    "--corpus demo": "--scale 32",
    "--rows base,big": "--corpus demo --scale 32",
}
"""Options added to a line; the last of two counts."""
BEFORE = {
    "repro new my-run": "rm -f my-run.*",
    "repro export": "rm -rf exports my-model",
    "repro lineage demo/score/test": "repro run demo",
    "--key trusted/us.pem": "repro sign demo@champion --key sign.key",
}
"""What is done before a line that has these words: it makes place, ends a whole run, or signs by the key of the page's
line before."""
SAYS = {
    "attention": r"\.png",
    "backup": r"mlflow\.db",
    "check": "reproduced",
    "compare": "demo/1",
    "doctor": "disk",
    "env": "export PREFECT_HOME=",
    "explain-filters": "length_ratio",
    "gc": "in all|{",
    "history": "repro run",
    "lineage": "clean",
    "ls": "there",
    "models": "demo/|demo",
    "new": r"wrote my-run\.toml",
    "paper": "Against the paper",
    "path": "/",
    "plan": "shard|cached",
    "promote": "@[a-z]+ is |already",
    "restore": "is that of",
    "run": "completed|cached|breach|expect",
    "runs": "multi30k-ende-bt",
    "show": r"\[training\]",
    "sign": "is signed",
    "site": "public/index.html",
    "trace": "clean|score",
    "sweep": "trial",
    "translate": ".",
    "verify": "intact|as signed|{",
}
"""What a command says, as a regular expression, if its output is not redirected."""
CODES = {
    "repro run demo --set 'expect=score.dev.bleu >= 85,train.loss@200 <= 4,warn train.seconds <= 3600'": 1,
    "repro check demo": 1,
    "mlflow models serve -m models:/demo@champion --env-manager local": 1,
}
"""Exit codes of what a run of few updates does not reach, and of MLflow's server after Ctrl-C."""
UNTIL = {"repro serve": "http://", "mlflow": "Application startup complete"}
"""What runs until Ctrl-C, and what it says before."""


def test_each_command_of_each_page_is_run_or_has_a_reason() -> None:
    """A page that gains a command needs a line that runs, or an entry in a table."""
    unknown = [f"{command}" for command in documented_commands() if state(command)[0] == "unknown"]
    assert unknown == []


def test_a_command_that_nothing_runs_would_be_found() -> None:
    new = DocumentedCommand("docs/new.md", ("repro", "translate", "in.txt", "--beam", "7"), True)
    assert state(new)[0] == "unknown"
    shortened = DocumentedCommand("docs/new.md", ("repro", "translate", "FILE", "--bem", "7"), False)
    assert state(shortened)[0] == "unknown"


def test_the_tables_name_commands_of_the_pages_and_tests_that_exist() -> None:
    texts = {shlex.join(command.words) for command in documented_commands()}
    assert {*CANNOT, *ELSEWHERE} <= texts
    tests = {test.partition(" ")[0] for table in (ELSEWHERE, WITH_VARIABLES) for test in table.values()}
    assert [test for test in tests if not (TOP / test).is_file()] == []
    assert CANNOT.keys().isdisjoint(ELSEWHERE)
    written = {line for file in files() for line in code_lines(file.read_text())}
    assert [start for start in WITH_VARIABLES if not any(line.startswith(start) for line in written)] == []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("documented"))
    try:
        for line in PREPARED:
            made.run(line)
        yield made
    finally:
        made.end()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("line", lines())
def test_a_line_does_what_it_says(line: str, world: World) -> None:
    for beginning, before in BEFORE.items():
        if beginning in line:
            world.run(before)
    here = INSTEAD.get(line, line)
    for beginning, variable in FRONT.items():
        here = f"{variable} {here}" if here.startswith(beginning) else here
    for program, options in SMALLER.items():
        here = f"{here} {options}" if program in here else here
    for beginning, sign in UNTIL.items():
        if line.startswith(beginning):
            assert sign in world.run_until(here, sign, CODES.get(line, 0))
            return
    said = world.run(here, CODES.get(line, 0))
    for words in commands_in(line):
        if words[0] == "repro" and ">" not in line:
            assert re.search(SAYS.get(words[1], ""), said), said
