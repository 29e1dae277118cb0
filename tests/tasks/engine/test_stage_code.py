"""The code and libraries of a stage: computed fast, recorded in manifests, compared on every hit."""

import gc
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from toy_stages import ORDER, built, settings

from infra.site import Site
from infra.store.local import LocalStore
from tasks.engine import lookup, stage_code
from tasks.engine.planner import Planner, Scope, StageResult
from tasks.engine.runner import Runner
from tasks.engine.stage_code import UNCHANGED, CodeChange, CodeIndex, StageCode

BEFORE = StageCode({"tasks.stages.a": "1", "tasks.b": "2"}, {"python": "3.11.7", "polars": "1.35"})


def test_a_stage_has_the_code_of_its_module_its_imports_and_its_job() -> None:
    code = stage_code.stage_code("tasks.stages.train")
    assert {"tasks.stages.train", "model.train", "model.network.transformer"} <= code.modules.keys()
    assert not {"tasks.stages.clean", "model.average"} & code.modules.keys()
    assert not [module for module in code.modules if module.startswith(("infra", "tasks.engine"))]
    assert {"python", "torch", "safetensors"} <= code.libraries.keys()
    assert "polars" not in code.libraries
    assert stage_code.stage_code("toy_stages") == StageCode({}, {})


@pytest.fixture
def switching_threads() -> Iterator[None]:
    """Let other threads run in the middle of a parse, whenever it collects garbage."""
    thresholds = gc.get_threshold()

    def switch(*_: object) -> None:
        time.sleep(0.0002)

    gc.callbacks.append(switch)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(switch)


def test_threads_parse_at_once(switching_threads: None) -> None:
    path = stage_code.module_file("tasks.stages.learn_bpe")
    assert path
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(stage_code.syntax_of_text, [path.read_bytes()] * 8))) == 8


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (BEFORE, ""),
        (
            StageCode({**BEFORE.modules, "tasks.b": "3", "model.c": "1"}, BEFORE.libraries),
            "code changed: model.c, tasks.b",
        ),
        (
            StageCode(BEFORE.modules, {"python": "3.11.9", "polars": "1.36", "numpy": "2"}),
            "libraries changed: numpy none -> 2, polars 1.35 -> 1.36",
        ),
        (StageCode({"tasks.stages.a": "9"}, {"python": "3.12.1", "polars": "1.35"}), ""),
    ],
)
def test_what_changed_is_named(now: StageCode, expected: str) -> None:
    assert f"{now.change_since(json.loads(json.dumps(asdict(BEFORE))))}" == expected
    assert now.change_since({"commit": "c0ffee"}) == UNCHANGED, "an older manifest has no record"


def test_only_edited_modules_are_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, cache = tmp_path / "project", tmp_path / "stamps" / "code.json"
    (project / "tasks").mkdir(parents=True)
    (project / "tasks" / "a.py").write_text("import polars\nfrom tasks import b\n\nx = 1\n")
    (project / "tasks" / "b.py").write_text("y = 2\n")
    monkeypatch.setattr(stage_code, "PROJECT", project)
    parsed: list[bytes] = []
    syntax = stage_code.syntax_of_text
    monkeypatch.setattr(stage_code, "syntax_of_text", lambda text: parsed.append(text) or syntax(text))

    def digests() -> dict[str, str]:
        index = CodeIndex(cache)
        found = {name: code.digest for name in index.reached("tasks.a") if (code := index.module(name))}
        index.save()
        return found

    first = digests()
    assert (sorted(first), len(parsed)) == (["tasks.a", "tasks.b"], 2)
    parsed.clear()
    assert digests() == first
    assert parsed == []
    (project / "tasks" / "b.py").write_text('"""Text."""\n\ny = 2  # two\n')
    assert digests() == first, "comments and docstrings do not count"
    assert parsed == [(project / "tasks" / "b.py").read_bytes()]
    (project / "tasks" / "b.py").write_text("y = 3\n")
    assert digests()["tasks.a"] == first["tasks.a"]
    assert digests()["tasks.b"] != first["tasks.b"]
    cache.write_text("{")
    assert digests()["tasks.a"] == first["tasks.a"]


def run(root: Path, strict: bool = False) -> list[StageResult]:
    return built(Runner(settings(root, site=Site(root=root, strict=strict)))).rows


def plan(root: Path, strict: bool = False) -> list[str]:
    present = built(Planner(LocalStore(root), Site(root=root, strict=strict), Scope(ORDER)))
    return [row.label for row in present.rows]


def test_a_hit_by_other_code_says_so_and_is_a_miss_where_the_site_is_strict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = [BEFORE]
    monkeypatch.setattr(lookup, "stage_code", lambda module, cache: present[0])
    run(tmp_path)
    assert plan(tmp_path, strict=True) == ["cached"] * 3
    present[0] = replace(
        BEFORE, modules={**BEFORE.modules, "tasks.b": "9"}, libraries={**BEFORE.libraries, "polars": "2"}
    )
    assert plan(tmp_path) == ["cached (code and libraries changed)"] * 3
    assert [row.label for row in run(tmp_path)] == ["cached (code and libraries changed)"] * 3
    assert run(tmp_path)[0].code_change == CodeChange(("tasks.b",), ("polars 1.35 -> 2",))
    assert plan(tmp_path, strict=True) == ["miss"] * 3
    assert [row.label for row in run(tmp_path, strict=True)] == ["completed"] * 3
    assert plan(tmp_path, strict=True) == ["cached"] * 3


def test_a_strict_site_does_not_accept_an_artifact_without_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("tasks.engine.runner.asdict", lambda _: {})
        run(tmp_path)
    assert plan(tmp_path) == ["cached"] * 3
    assert plan(tmp_path, strict=True) == ["miss"] * 3
