"""Tests of the visit to a GPU: the schedule of its steps, what is packed, and a rehearsal on a CPU."""

import json
import os
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from importlib.metadata import distribution, distributions, packages_distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_training import pairs, write_shards, write_text, write_vocabulary

from benchmarks import pack_visit, visit, visit_kernels, visit_steps, visit_training
from benchmarks.decoding import parse
from benchmarks.machine import PROJECT_ROOT
from benchmarks.visit import PARTS, Place, Step, Visit
from flows.runs import RUNS
from infra.errors import BadConfiguration
from model.decoding.static_decoder import MOST_SENTENCES
from model.numerics import has_bf16

NEEDED = ("torch", "numpy", "pyarrow", "tokenizers", "safetensors", "sacrebleu", "pytest")
"""The packages of a visit, with those that they need themselves."""


def write_data(folder: Path) -> None:
    """Small data in the form of ``pack_visit.pack_run``."""
    for name, change in pack_visit.RUNS.items():
        data = folder / "data" / name
        write_shards(data / "shards", pairs(40))
        write_shards(data / "dev", pairs(10, seed=1), files=1)
        write_text(data / "text", [" ".join(f"p{piece}" for piece in source) for source, _ in pairs(10, seed=1)])
        write_vocabulary(data / "vocabulary")
        (data / "reference.txt").write_text("p5 p6\n" * 10)
        (data / "job.json").write_text(json.dumps(pack_visit.settings(change(RUNS[name]))))
    (folder / "visit.json").write_text(json.dumps({"commit": "1234abcd"}))


def program(folder: Path, name: str, text: str) -> str:
    """The path of a program whose last argument is the file for its result."""
    path = folder / f"{name}.py"
    path.write_text(f"import json, pathlib, sys, time\nfile = pathlib.Path(sys.argv[-1])\n{text}\n")
    return str(path)


def test_a_step_that_fails_or_hangs_leaves_the_others_alone(tmp_path: Path) -> None:
    report = tmp_path / "out" / "report.json"
    report.parent.mkdir()
    # A step's result is the report as it is while the step runs.
    look = program(tmp_path, "look", f"file.write_text(pathlib.Path({str(report)!r}).read_text())")
    fail = program(tmp_path, "fail", "sys.exit('out of luck')")
    hang = program(tmp_path, "hang", "file.write_text('[1]'); time.sleep(1000)")
    steps = [
        Step("first", 500, look),
        Step("failing", 500, fail),
        Step("needing", 500, look, needs="failing"),
        Step("hanging", 5, hang),
        Step("long", 5_000, look),
        Step("last", 500, look, needs="first"),
    ]
    rows = {row["name"]: row for row in Visit(steps, {"commit": "1234abcd"}, report.parent, 2_000).run()}
    expected = ["done", "failed", "skipped", "too slow", "skipped", "done"]
    assert [row["status"] for row in rows.values()] == expected
    assert rows["failing"]["why"] == "exit status 1"
    assert "out of luck" in rows["failing"]["output"]
    assert rows["hanging"]["result"] == [1], "what a killed step has written is kept"
    assert "failing" in rows["needing"]["why"]
    assert "of the limit are left" in rows["long"]["why"]
    seen = rows["last"]["result"]
    assert [row["status"] for row in seen["steps"]] == [*expected[:5], "waiting"], "the report grows with every step"
    assert seen["commit"] == "1234abcd"
    assert json.loads(report.read_text())["steps"] == list(rows.values())


def test_a_part_goes_on_where_an_earlier_call_was_cut_off(tmp_path: Path) -> None:
    counted = "n = len(list(here.iterdir())); (here / str(n)).touch(); "
    steps = []
    for name, then, needs in (
        ("whole", "file.write_text('[1]')", ""),
        ("training", "file.write_text(json.dumps({'cut_short': n == 0}))", ""),
        ("translated", "file.write_text('{}')", "training"),
        ("failing", "sys.exit(n == 0)", ""),
    ):
        (tmp_path / name).mkdir()
        text = f"here = pathlib.Path({str(tmp_path / name)!r}); {counted}{then}"
        steps.append(Step(name, 500, program(tmp_path, name, text), needs=needs))
    facts = {"commit": "1234abcd", "part": "train", "device": "cpu", "size": "tiny"}

    def call(limit: float = 3_000, **other: str) -> list[dict[str, Any]]:
        return Visit(steps, facts | other, tmp_path, limit, tmp_path / "kept.json").run()

    def times() -> list[int]:
        return [len(list((tmp_path / step.name).iterdir())) for step in steps]

    assert [row["status"] for row in call()] == ["done", "done", "done", "failed"]
    assert times() == [1, 1, 1, 1]
    rows = call()
    assert [row.get("earlier", False) for row in rows] == [True, False, False, False]
    assert [row["status"] for row in rows] == 4 * ["done"]
    assert times() == [1, 2, 2, 2], "what the time of a training cut short goes on, and what needs it"
    call()
    assert times() == [1, 2, 2, 3], "a step without a result may have had no time to write it"
    assert json.loads((tmp_path / "report.json").read_text())["steps"][0]["result"] == [1]
    call(limit=0, commit="another")
    assert [row["status"] for row in call(limit=0)] == 4 * ["skipped"], "of another commit nothing is kept"
    assert times() == [1, 2, 2, 3]


@pytest.mark.parametrize("part", PARTS)
def test_the_steps_of_a_part_fit_its_limit(part: str, tmp_path: Path) -> None:
    steps = Place("cuda", False, "1234abcd", tmp_path, tmp_path).steps(part)
    assert sum(step.seconds for step in steps) <= 560
    assert len({step.name for step in steps}) == len(steps)
    assert {step.needs for step in steps} - {step.name for step in steps} <= {""}
    assert all((PROJECT_ROOT / "benchmarks" / step.program).is_file() for step in steps)


@pytest.mark.parametrize("tiny", [False, True])
def test_a_check_compares_a_search_of_few_sentences_with_and_without_graphs(tmp_path: Path, tiny: bool) -> None:
    steps = Place("cuda", tiny, "1234abcd", tmp_path, tmp_path).steps("check")
    [step] = [step for step in steps if step.name == "decoding with graphs"]
    chosen = parse([*step.arguments, "--json"])
    assert (chosen.peers, chosen.lengths, chosen.device) == (["graphs"], "fixed", "cuda")
    assert chosen.batch <= MOST_SENTENCES


def test_a_check_runs_every_file_with_tests_for_a_gpu() -> None:
    mark = ".".join(("pytest", "mark", "gpu"))  # in one piece it would make this such a file
    tests = PROJECT_ROOT / "tests"
    files = {str(file.relative_to(tests)) for file in tests.rglob("test_*.py") if mark in file.read_text()}
    assert files == set(visit_steps.TESTS)


@pytest.mark.skipif(not (PROJECT_ROOT / ".git").exists(), reason="no checkout")
def test_the_code_is_packed_as_it_is_at_a_commit(tmp_path: Path) -> None:
    commit = pack_visit.unpack_code("HEAD", tmp_path)
    assert re.fullmatch("[0-9a-f]{40}", commit)
    assert (tmp_path / "model" / "train.py").is_file()
    assert (tmp_path / "tests" / "model" / "test_gpu.py").is_file()
    assert not (tmp_path / "flows").exists()


def artifacts(folder: Path) -> dict[tuple[str, str], Path]:
    """What the stages of multi30k-ende have written."""
    found = {("shard", "train"): folder / "train", ("shard", "val"): folder / "val"}
    for path in found.values():
        write_shards(path, pairs(5), files=1)
    found["learn_bpe", ""] = write_vocabulary(folder / "vocabulary")
    found["prepare_sets", "val"] = folder / "set"
    (folder / "set").mkdir()
    pq.write_table(
        pa.table({"pair_id": ["val:0", "val:1"], "target": ["Ein Hund.", "Zwei."]}), folder / "set/pairs.parquet"
    )
    for path in found.values():
        (path / "manifest.json").write_text("{}")
    return found


def request(rows: dict[tuple[str, str], Path], state: str) -> Any:
    """A ``RunRequest`` whose plan has these rows."""
    listed = [SimpleNamespace(stage=s, item=i, state=state, path=str(path)) for (s, i), path in rows.items()]
    plan = SimpleNamespace(outcome=SimpleNamespace(rows=listed))
    resolved = SimpleNamespace(run=RUNS["multi30k-ende"], plan=plan, site=SimpleNamespace(root="a-root"))
    return lambda name, until: SimpleNamespace(resolve=lambda: resolved)


def test_a_run_is_packed_with_its_references_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_visit, "RunRequest", request(artifacts(tmp_path), "hit"))
    folder = tmp_path / "packed"
    pack_visit.pack_run("multi30k-ende", pack_visit.on_gpu, folder)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == [
        *("dev/00000.arrow", "job.json", "reference.txt", "shards/00000.arrow", "text/pairs.parquet"),
        "vocabulary/tokenizer.json",
    ]
    assert (folder / "reference.txt").read_text() == "Ein Hund.\nZwei.\n"
    training = json.loads((folder / "job.json").read_text())["training"]
    assert (training["batching"], training["precision"], training["updates"]) == ("packed", "bf16", 6_000)


def test_a_root_without_shards_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_visit, "RunRequest", request(artifacts(tmp_path), "miss"))
    with pytest.raises(BadConfiguration, match="a-root has no shard train.*repro run multi30k-ende --until shard"):
        pack_visit.pack_run("multi30k-ende", pack_visit.on_gpu, tmp_path / "packed")


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """The arguments of a step of ``visit_steps.py`` over small data."""
    write_data(tmp_path)
    for module in (visit_training, visit_kernels):
        monkeypatch.setattr(module, "PROJECT_ROOT", tmp_path)
    return Namespace(
        device="cpu", size="tiny", work=tmp_path, out=tmp_path, json=tmp_path / "result.json", run="multi30k-ende",
        name="", seconds=1e9, stop_at=0, short=False,
    )  # fmt: skip


def test_a_training_that_is_cut_short_is_translated_and_scored(chosen: Namespace) -> None:
    chosen.seconds = 0.0
    facts = visit_training.train(chosen)
    assert (facts["updates"], facts["cut_short"]) == (1, True)
    assert list(facts["weights"]) == ["00000001"]
    scored = visit_training.translate(chosen)
    assert scored["sentences"] == 10
    assert scored["checkpoints"] == 1
    assert 0 <= scored["bleu"] <= 100
    assert len((chosen.out / "multi30k-ende.translations.txt").read_text().splitlines()) == 10
    chosen.seconds = 1e9
    more = visit_training.train(chosen)
    assert (more["updates"], more["cut_short"]) == (12, False), "a later call goes on"
    scored = visit_training.translate(chosen)
    assert scored["checkpoints"] > 1
    found = visit_training.precisions(chosen)
    assert (found["fp32"]["equal"], found["fp32"]["bleu"]) == (1, scored["bleu"])
    assert "needs a GPU" in found["tf32"]["refused"]
    if has_bf16():
        assert found["bf16"]["equal"] > 0.5
        assert found["bf16"]["sentences_per_second"] > 0


def test_a_short_training_is_interrupted_and_resumed(chosen: Namespace) -> None:
    chosen.short, chosen.stop_at = True, 6
    assert visit_training.train(chosen)["updates"] == 6
    chosen.stop_at = 0
    facts = visit_training.train(chosen)
    assert facts["updates"] == 15
    assert list(facts["weights"]) == ["00000005", "00000010", "00000015"]
    assert [update for update, _ in facts["dev"]] == [12, 15]


def test_own_and_torchs_attention_agree_on_a_batch_of_the_corpus(chosen: Namespace) -> None:
    found = visit_kernels.attention(chosen)
    assert all(found[kind]["distance"] < 1e-5 for kind in ("self", "causal", "cross"))
    assert all(found[kind]["operator with dropout"] > 0 for kind in ("self", "causal", "cross"))
    lengths = [f"all of {n}" for n in visit_kernels.EQUAL_LENGTHS] + [f"one of {n}" for n in visit_kernels.ONE_LONG]
    for name in lengths:
        assert 0 <= found[f"self, {name}"]["distance"] < 1e-5
        assert min(found[f"self, {name}"][which] for which in ("operator", "torch")) > 0


@pytest.mark.parametrize(
    ("kernel", "group"),
    [
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "products"),
        ("void pytorch_flash::flash_fwd_kernel<cutlass::bfloat16_t>", "attention"),
        ("_backward", "attention"),
        ("triton_per_fused_native_layer_norm_3", "triton"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimiser"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
        ("void at::native::reduce_kernel", "other"),
    ],
)
def test_kernels_are_grouped_by_their_names(kernel: str, group: str) -> None:
    assert visit_kernels.group_of(kernel) == group


def test_a_device_is_busy_where_kernels_overlap_once() -> None:
    assert visit_kernels.busy([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.0, 1.5)]) == 4.0


def absent() -> list[str]:
    """Installed modules that are neither of a package in ``NEEDED`` nor of one that those need."""
    found, wanted = set[str](), list(NEEDED)
    known = {plain(each.metadata["Name"]) for each in distributions()}
    while wanted:
        name = plain(wanted.pop())
        if name in found or name not in known:
            continue
        found.add(name)
        listed = distribution(name).requires or []
        wanted += [re.split(r"[^A-Za-z0-9._-]", line)[0] for line in listed if "extra ==" not in line]
    owners = packages_distributions()
    return sorted(module for module, names in owners.items() if not found & {plain(name) for name in names})


GUARD = """import sys


class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *rest):
        return None if name.partition(".")[0] in {refused} else self.finder.find_spec(name, *rest)

    def __getattr__(self, name):
        return getattr(self.finder, name)


sys.meta_path[:] = map(Hiding, sys.meta_path)
"""
"""Hides modules. None in ``sys.modules`` would do for Python, but pyarrow's compiled code takes it for pandas."""


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_rehearsed_with_the_packages_of_a_gpu_node_alone(part: str, tmp_path: Path) -> None:
    folder, guard, out = tmp_path / "visit", tmp_path / "guard", tmp_path / "out"
    for name in pack_visit.CODE:
        copy = shutil.copytree if (PROJECT_ROOT / name).is_dir() else shutil.copy2
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy(PROJECT_ROOT / name, folder / name)
    write_data(folder)
    guard.mkdir()
    packed = {name.partition("/")[0] for name in pack_visit.CODE}
    refused = [module for module in absent() if module not in packed]
    assert {"polars", "prefect", "mlflow", "flows", "infra", "tasks"} <= set(refused)
    (guard / "sitecustomize.py").write_text(GUARD.format(refused=refused))
    environment = {**os.environ, "PYTHONPATH": str(guard), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = ["--part", part, "--device", "cpu", "--size", "tiny", "--limit", "100000", "--out", str(out)]
    subprocess.run([sys.executable, "benchmarks/visit.py", *words], cwd=folder, env=environment, check=True)
    report = json.loads((out / visit.REPORT).read_text())
    assert report["commit"] == "1234abcd"
    for row in report["steps"]:
        assert row["status"] == "done", row.get("output", row)
        assert row["result"]
    assert len(list(out.iterdir())) <= 8
    results = {row["name"]: row["result"] for row in report["steps"]}
    if part == "check":
        assert results["tests"]["counts"]["passed"] > 5
        assert not results["tests"]["failed"]
        assert results["profile"]["groups"]
    if part == "train":
        assert results["resumed training"]["equal"] == {"again": True, "resumed": True}
        assert "bleu" in results["wmt14-sample-ende translated"]
