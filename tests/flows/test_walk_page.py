"""Pages that programs write, such as ``docs/walk.md``, are current, and a trace shows any text as it is."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from docs_script import DOCS, docs_script
from rich.console import Console
from toy_stages import Untracked

from flows.inspection.trace import PairTrace, Step, trace_pair
from flows.reproduce import STAGES, reproduce
from flows.runs import DEMO
from flows.views.terminal import TerminalDisplay
from flows.views.trace_view import print_trace
from infra.site import Site
from infra.store.local import LocalStore
from tasks.engine.planner import Scope, StopPipeline
from tasks.engine.run_settings import RunSettings
from tasks.engine.runner import Runner
from tasks.engine.stage import engine


def drawn(walk: PairTrace, width: int) -> str:
    shown = io.StringIO()
    print_trace(walk, Console(file=shown, width=width, highlight=False))
    return shown.getvalue()


def before_training(text: str) -> str:
    """The part of a trace that does not depend on weights."""
    return re.split(r"^(?:train|translate) ", text, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.fixture(scope="module")
def demo_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the demo up to its shards: a few seconds."""
    root = tmp_path_factory.mktemp("demo")
    display, scope = TerminalDisplay(), Scope(STAGES, "shard")
    making = Runner(RunSettings(LocalStore(root), Site(root=root), scope, display, Untracked()))  # type: ignore[arg-type]
    with engine(making), contextlib.suppress(StopPipeline):
        reproduce(DEMO, False, None)
    return root


def test_the_page_is_what_the_demo_gives(demo_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", str(demo_data))
    script = docs_script("walk.py")
    blocks = script.blocks(script.PAGE.read_text())
    kinds = set()
    for words, shown in blocks.items():
        _, name, pair_id = words.split()
        walk = trace_pair(name, pair_id)
        today = script.trimmed(drawn(walk, script.COLUMNS))
        assert before_training(shown) == before_training(today), "run `make walk` to update docs/walk.md"
        assert walk.steps[-1].kind == "cleaned" or "\nshard  row " in before_training(shown)
        rejected = any(step.values.get("rejected_by") for step in walk.steps)
        kinds.add((walk.set_name, rejected))
    assert kinds == {("", False), ("", True), ("test", False)}


def test_brackets_are_no_markup_and_odd_signs_are_seen() -> None:
    published = Step("published", "download", "", {"source": " [bold]a\u2028b", "target": "c\x1b[31m"})
    verdict = {"rule": "mine", "said": "kept", "measured": "[red]", "allowed": ""}
    cleaned = Step("cleaned", "clean", "", {"source": "[bold]ab", "target": "c", "verdicts": [verdict]})
    missing = Step("missing", "train", "[why]", {})
    shown = drawn(PairTrace("[i]", "x:3", "", (published, cleaned, missing), ("[note]",)), 200)
    for text in (r"\x20[bold]a\u2028b", r"c\x1b[31m", "[bold]ab", "[red]", "[why]", "[note]", "[i]"):
        assert text in shown


@pytest.mark.parametrize("page", ["commands.md", "run-fields.md", "python.md"])
def test_a_page_made_from_the_program_is_current(page: str) -> None:
    assert (DOCS / page).read_text() == docs_script("reference.py").PAGES[page](), "run `make reference`"
