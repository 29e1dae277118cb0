"""``repro check``: within the tolerance, to the bit on the recorded kind of machine, one changed weight is caught."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from sealing import sealed

from flows.commands.check import check
from flows.inspection.check import ReproductionCheck, compare_results, fresh_run
from flows.runner.request import RunRequest
from flows.runs import RUNS
from flows.runs.recorded_results import RecordedResults, recorded_results
from infra.errors import BadConfiguration, Fault
from infra.store.local import LocalStore
from tasks.engine.lookup import Miss, MissReason
from tasks.engine.planner import StageResult

WEIGHTS = bytes(range(64))
KIND = "AVX512, 2 threads, 1 ranks, torch 2.13.0"
EXPECTED = RecordedResults(
    {"dev": {"bleu": 91.26}},
    {"bleu": 3.0},
    {KIND: {"average": {"model.safetensors": hashlib.sha256(WEIGHTS).hexdigest()}}},
)


def compared(
    root: Path, weights: bytes = WEIGHTS, bleu: float = 91.0, kernels: str = "AVX512, 2 threads"
) -> ReproductionCheck:
    """The check of a run whose artifacts are whole: a change was made before they were sealed."""
    store = LocalStore(root)
    made = {"libraries": {"torch": "2.13.0"}}
    facts = {"ranks": 1, **({"kernels": kernels} if kernels else {})}
    sealed(store, "t", {"metrics.jsonl": b""}, stage="train", facts=facts, made=made)
    sealed(store, "a", {"model.safetensors": weights}, stage="average")
    rows = [
        StageResult("train", "", "t", "cached", facts=facts),
        StageResult("average", "", "a", "cached"),
        StageResult("score", "dev", "s", "cached", facts={"bleu": bleu}),
    ]
    return compare_results("demo", rows, store, EXPECTED)


def test_the_recorded_bits_are_reproduced(tmp_path: Path) -> None:
    found = compared(tmp_path)
    assert found.is_reproduced
    assert f"{found}" == (
        "demo: reproduced: dev bleu is 91.00, recorded is 91.26 ± 3.00; "
        f"model.safetensors of average is as recorded of {KIND}"
    )


def test_one_changed_weight_is_caught_though_the_scores_are_the_same(tmp_path: Path) -> None:
    changed = bytearray(WEIGHTS)
    changed[17] ^= 1
    found = compared(tmp_path, bytes(changed), bleu=91.26)
    assert not found.is_reproduced
    assert f"{found}" == (
        f"demo: not reproduced, because model.safetensors of average differs from the record of {KIND}"
    )


@pytest.mark.parametrize(
    ("kernels", "why"), [("AVX2, 8 threads", "this is AVX2, 8 threads"), ("", "does not say on which kernels")]
)
def test_other_kinds_of_machines_are_compared_by_scores_alone(tmp_path: Path, kernels: str, why: str) -> None:
    found = compared(tmp_path, b"other bits", kernels=kernels)
    assert found.is_reproduced
    assert why in found.not_compared
    assert not replace(found, differs=("x",)).is_reproduced
    low = compared(tmp_path / "low", b"other bits", 88.25, kernels)
    assert f"{low}" == "demo: not reproduced, because dev bleu is 88.25, recorded is 91.26 ± 3.00"


def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    rows = [
        StageResult("average", "", "a", "miss", miss=Miss(MissReason.DAMAGED, detail="model.safetensors was altered"))
    ]
    found = compare_results("demo", rows, LocalStore(tmp_path), EXPECTED)
    assert found.differs == (
        "average is not there as it was made (model.safetensors was altered)",
        "dev has no bleu, recorded is 91.26 ± 3.00",
    )


def test_every_record_is_of_a_built_in_run_and_its_sets() -> None:
    for name, known in recorded_results().items():
        assert {each.name for each in RUNS[name].sets} >= known.scores.keys()
        assert {measure for card in known.scores.values() for measure in card} <= known.tolerance.keys()
        for sums in known.digests.values():
            assert sums.keys() <= {"average", *(f"translate {each}" for each in known.scores)}


def test_the_command_refuses_unknown_runs_and_an_empty_root(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadConfiguration, match="'dem', .*demo, multi30k-ende"):
        check("dem")
    with pytest.raises(Fault, match="not reproduced, because download "):
        check("demo", as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["run"], printed["reproduced"], printed["agrees"]) == ("demo", False, [])


def test_a_scheduled_check_empties_its_own_folder_and_touches_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    own = tmp_path / "check" / "demo"
    kept = sealed(LocalStore(tmp_path)).path()
    old = sealed(LocalStore(own)).path()
    site = fresh_run(RunRequest("demo", until="score")).site
    assert kept.is_dir()
    assert not old.exists()
    assert (site.root, site.remote, site.tracking_uri) == (own, "", "")
