"""The canary's comparison: one changed weight is caught by the record or by the last night, and so is a slow stage."""

from dataclasses import replace
from pathlib import Path

import pytest
from sealing import sealed

from flows.inspection import canary as canaries
from flows.inspection.canary import Canary, CanaryHistory, CanaryLimits, canary_folder, compare, fresh_run
from flows.runner.request import RunRequest
from infra.errors import BadConfiguration
from infra.store.local import Store
from infra.tracking.provenance import short_commit
from tasks.engine.planner import StageResult

WEIGHTS = bytes(range(64))
KIND = "AVX2, 3 threads, 1 ranks, torch 2.13.0"
NO_LIMITS = CanaryLimits(slower=0)


def night(
    tmp_path: Path,
    number: int,
    weights: bytes = WEIGHTS,
    seconds: float = 10.0,
    limits: CanaryLimits = NO_LIMITS,
    bleu: float = 40.0,
) -> Canary:
    """A canary with these weights, in an empty folder as each has one; all nights share a history."""
    store = Store(tmp_path / f"{number}")
    facts = {"ranks": 1, "kernels": "AVX2, 3 threads"}
    sealed(store, "c", {"pairs.parquet": b"pairs"}, stage="clean")
    made = {"libraries": {"torch": "2.13.0"}}
    sealed(store, "t", {"checkpoints/1/model.safetensors": weights}, stage="train", facts=facts, made=made)
    sealed(store, "a", {"model.safetensors": weights, "model.json": b"{}"}, stage="average")
    sealed(store, "s", {"card.json": f"{bleu}".encode()}, stage="score")
    rows = [
        StageResult("clean", "", "c", "hit", 1.0),
        StageResult("train", "", "t", "hit", seconds, facts=facts),
        StageResult("average", "", "a", "hit", 1.0),
        StageResult("score", "test", "s", "hit", 0.0, facts={"bleu": bleu}),
    ]
    history = CanaryHistory.read(tmp_path / "history.jsonl")
    found = compare("own", rows, store, history, limits)
    history.append(found)
    return found


def changed(weights: bytes) -> bytes:
    return bytes([weights[0] ^ 1]) + weights[1:]


def of(night: Canary) -> str:
    return short_commit(night.commit) or "unknown"


def test_one_changed_weight_is_caught_by_the_night_before(tmp_path: Path) -> None:
    first, second = night(tmp_path, 1), night(tmp_path, 2)
    assert first.message("own") == f"own (nothing is recorded of {KIND}: the next canaries are compared with this one)"
    assert second.message("own") == (
        f"own is as recorded: model.safetensors of average is as recorded of {KIND}; "
        f"card.json of score test is as recorded of {KIND}"
    )
    third = night(tmp_path, 3, changed(WEIGHTS))
    assert third.moved == (
        f"model.safetensors of average differs from the record of {KIND}",
        f"the first stage with other files than the canary of {second.time} (commit {of(second)}, now {of(third)}) "
        "is train",
        f"if that is meant, remove {tmp_path}/history.jsonl",
    )
    assert night(tmp_path, 4, changed(WEIGHTS)).moved, "what moved is no record for the next night"
    assert not night(tmp_path, 5).moved


def test_one_changed_weight_is_caught_by_the_record_on_the_first_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = night(tmp_path / "recorded", 1).sums
    known = canaries.ExpectedResults({}, {}, {KIND: sums})
    monkeypatch.setattr(canaries, "expected_results", lambda: {"own": known})
    assert not night(tmp_path, 1).moved
    assert night(tmp_path / "other", 1, changed(WEIGHTS)).moved == (
        f"model.safetensors of average differs from the record of {KIND}",
    )


def test_scores_of_equal_translations_that_move_are_caught_though_the_record_allows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = {"average": night(tmp_path / "recorded", 1).sums["average"]}
    known = canaries.ExpectedResults({"test": {"bleu": 40.0}}, {"bleu": 3.0}, {KIND: sums})
    monkeypatch.setattr(canaries, "expected_results", lambda: {"own": known})
    monkeypatch.setattr(canaries, "commit", lambda: "0123456789abcdef")
    first = night(tmp_path, 1)
    monkeypatch.setattr(canaries, "commit", lambda: "0123456789abcdef+")
    assert night(tmp_path, 2, bleu=39.0).moved == (
        f"card.json of score test differs from the record of {KIND}",
        "test bleu is 39.00, it was 40.00",
        f"the first stage with other files than the canary of {first.time} (commit 0123456789, now 0123456789+) "
        "is score test",
        f"if that is meant, remove {tmp_path}/history.jsonl",
    )


def test_a_slow_night_names_the_stage(tmp_path: Path) -> None:
    limits = CanaryLimits(slower=2)
    nights = [
        night(tmp_path, number, seconds=seconds, limits=limits) for number, seconds in enumerate((90, 100, 110, 200))
    ]
    assert not any(each.moved for each in nights)
    slow = night(tmp_path, 5, seconds=240, limits=limits)
    assert slow.moved == (
        "it took 242 s, allowed are 2 times (parameter slower) the 107 s of the last 4 good canaries; "
        "train took 240 s, 135 s more than usual",
    )
    short = tmp_path / "short"
    assert not night(short, 1, seconds=1, limits=limits).moved
    assert not night(short, 2, seconds=30, limits=limits).moved, "a short run waits for a busy machine"
    assert night(tmp_path, 6, limits=CanaryLimits(seconds=5)).moved == (
        "it took 12 s, allowed are 5 s (parameter seconds)",
    )
    with pytest.raises(BadConfiguration, match="slower is 0.5, allowed is 0 \\(no limit\\) or a number above 1"):
        CanaryLimits(slower=0.5)


def test_a_canary_empties_its_own_folder_and_touches_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("REPRO_GPU_POOL", "gpu")
    kept, old = sealed(Store(tmp_path)), sealed(Store(canary_folder(tmp_path, "demo")))
    resolved = fresh_run(RunRequest("demo"))
    assert kept.folder.exists()
    assert not old.folder.exists()
    site = resolved.site
    assert (site.root, site.tracking_uri, site.gpu_pool) == (tmp_path / "canary" / "demo", "", "")
    assert resolved.scope.until == "score", "it registers no version"
    assert {row.state for row in resolved.plan.outcome.rows} == {"miss"}
    assert replace(site, root=tmp_path).tracking == f"sqlite:///{tmp_path}/mlflow.db"
