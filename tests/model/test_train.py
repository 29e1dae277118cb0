"""Tests of whole trainings: they learn, resume after a kill to the same weights, and end with a reason."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_training import (
    MODEL,
    TRAINING,
    assert_same_training,
    end_after,
    fork,
    in_float64,
    pairs,
    rows,
    run,
    run_ranks,
    run_until_killed,
    weights,
    write_job,
    write_shards,
    write_vocabulary,
)

from model import average
from model.data.shards import Shards
from model.job import Job
from model.network.weights import load_model
from model.numerics import has_bf16
from model.training import trainer as training_loop
from model.training.distributed import Ranks
from model.training.setup import build_trainer, sampler_of


def test_files_that_a_training_writes(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    answer = run(job)
    assert answer["reason"] == "done"
    files = {str(path.relative_to(job.parent)) for path in job.parent.rglob("*") if path.is_file()}
    assert files - {"job.log"} == {
        "job.json",
        "exit.json",
        "metrics.jsonl",
        "model.json",
        "checkpoints/00000008/model.safetensors",
        "checkpoints/00000012/model.safetensors",
        "checkpoints/00000012/state.safetensors",
        "checkpoints/00000012/position.json",
    }
    updates = [row["done"] for row in rows(job) if "loss" in row]
    assert updates == list(range(1, 13))
    assert [row["done"] for row in rows(job) if "dev_perplexity" in row] == [6, 12]
    assert answer["facts"]["dev_perplexity"] == rows(job)[-2]["dev_perplexity"]
    (job.parent / "checkpoints/00000012/model.json").write_bytes((job.parent / "model.json").read_bytes())
    model = load_model(job.parent / "checkpoints/00000012")
    assert sum(p.numel() for p in model.parameters()) == answer["facts"]["parameters"]


def test_killed_and_resumed_is_uninterrupted_to_the_bit_and_another_seed_gives_other_bytes(tmp_path: Path) -> None:
    training = replace(TRAINING, updates=200, checkpoint_every=100, dev_every=50)
    whole = write_job(tmp_path, name="whole", training=training)
    other = write_job(tmp_path, name="other", training=replace(training, seed=2))
    run(whole)
    run(other)
    killed = write_job(tmp_path, name="killed", training=training, resume_seconds=0.0)
    for minimum in (20, 60):
        child = fork(killed)
        while not any(int(p.name) > minimum for p in killed.parent.glob("checkpoints/" + "[0-9]" * 8)):
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "ended before it could be killed"
            time.sleep(0.002)
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert not (killed.parent / "model.json").exists()
    assert run(killed)["reason"] == "done"
    first = [row["done"] for row in rows(killed) if "loss" in row]
    assert max(first) == 200
    assert first.count(1) == 1, "restarted from the first update"
    assert weights(killed) == weights(whole) != weights(other)
    assert run(killed)["facts"]["target_tokens"] == run(whole)["facts"]["target_tokens"]


def test_a_training_counts_as_finished_when_its_results_are_on_the_disk(tmp_path: Path) -> None:
    job = write_job(tmp_path, training=replace(TRAINING, patience=9))
    calls = tmp_path / "calls"

    def note() -> None:
        fsync = os.fsync
        rename = Path.replace

        def synced(descriptor: int) -> None:
            with calls.open("a") as file:
                file.write(f"synced {Path(f'/proc/self/fd/{descriptor}').readlink().name}\n")
            fsync(descriptor)

        def renamed(path: Path, target: Path) -> Path:
            with calls.open("a") as file:
                file.write(f"renamed {path.name}\n")
            return rename(path, target)

        os.fsync = synced
        Path.replace = renamed  # type: ignore[method-assign,assignment]

    assert run(job, before=note)["reason"] == "done"
    said = calls.read_text().splitlines()
    end = said.index("renamed model.json.partial")
    best = ["synced best.json.partial", "renamed best.json.partial"]
    assert said[end - 4 : end] == [*best, "synced metrics.jsonl", "synced model.json.partial"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"patience": 20, "peak": 1.0, "dev_every": 5, "keep": 1},  # the best is far behind
        {"updates": 0, "epochs": 2, "warmup": 0, "warmup_epochs": 1, "keep": 0, "keep_epochs": 1},
    ],
)
def test_killed_before_it_counts_as_finished_ends_with_the_same_files(tmp_path: Path, changes: dict[str, Any]) -> None:
    whole, killed = (write_job(tmp_path, name=n, training=replace(TRAINING, **changes)) for n in ("whole", "killed"))
    kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
    facts = run(whole)["facts"]
    run_until_killed(killed, lambda: setattr(training_loop, "save_model_config", kill))
    assert not (killed.parent / "model.json").exists()
    kept = {path.relative_to(whole.parent) for path in whole.parent.glob("checkpoints/**/*")}
    assert kept == {path.relative_to(killed.parent) for path in killed.parent.glob("checkpoints/**/*")}
    again = run(killed)["facts"]
    assert {**again, "seconds": 0, "epoch_minutes": 0} == {**facts, "seconds": 0, "epoch_minutes": 0}
    assert kept == {path.relative_to(killed.parent) for path in killed.parent.glob("checkpoints/**/*")}
    assert weights(killed) == weights(whole)


def test_lengths_in_epochs_are_those_of_their_updates(tmp_path: Path) -> None:
    linear = replace(TRAINING, schedule="linear")
    in_epochs = replace(linear, updates=0, epochs=3, warmup=0, warmup_epochs=1, keep=0, keep_epochs=2)
    job = write_job(tmp_path, name="epochs", training=in_epochs)
    assert run(job, before=lambda: end_after(update=10))["reason"] == "preempted"
    answer = run(job)
    sampler = sampler_of(MODEL, TRAINING, Shards(tmp_path / "shards"))
    batches = [len(sampler.epoch(number)) for number in range(3)]
    updates = sum(batches)
    assert answer["facts"]["updates"] == updates
    epochs = {row["done"]: row["epoch"] for row in rows(job) if "epoch" in row}
    assert epochs[updates] == 3
    assert epochs[batches[0]] == 1
    assert epochs[batches[0] + 1] == pytest.approx(1 + 1 / batches[1])
    kept = [n for n in range(batches[0] + 1, updates + 1) if n % TRAINING.checkpoint_every == 0 or n == updates]
    assert [int(name) for name in weights(job)] == kept
    counted = replace(linear, updates=updates, warmup=batches[0], keep=len(kept))
    same = write_job(tmp_path, name="updates", training=counted)
    run(same)
    assert weights(same) == weights(job)
    out = tmp_path / "average"
    out.mkdir()
    chosen = Job({"averaging": {"count": 1, "which": "kept"}}, {"run": job.parent}, out)
    assert average.work(chosen) == {"checkpoints": len(kept), "first_update": kept[0], "last_update": updates}


def test_a_resumed_training_does_not_read_its_initial_weights_again(tmp_path: Path) -> None:
    before = write_job(tmp_path, name="before")
    trained = run(before)["facts"]["dev_perplexity"]
    start = before.parent / "checkpoints/00000012"
    cautious = replace(TRAINING, peak=1e-6, dev_every=1)
    whole, stopped = (write_job(tmp_path, name=n, training=cautious) for n in ("whole", "stopped"))
    for job in (whole, stopped):
        content = json.loads(job.read_text())
        content["inputs"]["start"] = str(start)
        job.write_text(json.dumps(content))
    run(whole)
    first = next(row["dev_perplexity"] for row in rows(whole) if "dev_perplexity" in row)
    assert first == pytest.approx(trained, rel=1e-3), "a first update moves the starting weights a little"
    assert [row["done"] for row in rows(whole) if "loss" in row] == list(range(1, 13))
    assert run(stopped, before=lambda: end_after(update=5))["reason"] == "preempted"
    (start / "model.safetensors").unlink()
    assert run(stopped)["reason"] == "done"
    assert weights(stopped) == weights(whole)


@pytest.mark.parametrize("batching", ["buckets", "packed"])
def test_micro_batches_add_up_to_the_batch(tmp_path: Path, batching: Any) -> None:
    model, training = replace(MODEL, p_drop=0.0), replace(TRAINING, batching=batching)
    whole, parts = (
        write_job(tmp_path, name="whole", model=model, training=training),
        write_job(tmp_path, name="parts", model=model, training=training, micro_batch_tokens=15),
    )
    for job in (whole, parts):
        run(job, in_float64)
    assert_same_training(whole, parts)
    assert weights(whole) != weights(parts), "nothing was cut"


@pytest.mark.parametrize(("micro_batch_tokens", "batching"), [(0, "buckets"), (0, "mixed"), (15, "packed")])
def test_two_ranks_are_one(tmp_path: Path, micro_batch_tokens: int, batching: Any) -> None:
    model, training = replace(MODEL, p_drop=0.0), replace(TRAINING, batching=batching)
    one = write_job(tmp_path, name="one", model=model, training=training)
    two = write_job(tmp_path, name="two", model=model, training=training, micro_batch_tokens=micro_batch_tokens)
    run(one, in_float64)
    assert run_ranks(two, 2, in_float64)["reason"] == "done"
    assert_same_training(one, two)
    assert rows(one)[-2]["dev_perplexity"] == pytest.approx(rows(two)[-2]["dev_perplexity"], rel=1e-9)


def test_dev_perplexity_is_that_of_the_plain_formula(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    trainer = build_trainer(Job.read(path), Ranks())
    trainer.validate()
    model, sums, pieces = trainer.step.model.eval(), 0.0, 0
    for source, target in pairs(10, seed=1):
        hidden = model(torch.tensor([[*source, 2]]), torch.tensor([[1, *target]]))
        log_p = model.logits(hidden).log_softmax(-1)[0]
        sums -= float(log_p.detach()[range(len(target) + 1), [*target, 2]].sum())
        pieces += len(target) + 1
    assert trainer.position.dev_perplexity == pytest.approx(float(torch.tensor(sums / pieces).exp()), rel=1e-5)


@pytest.mark.parametrize(
    ("change", "reason", "field"),
    [
        ({"peak": 1e30, "warmup": 1, "updates": 200, "checkpoint_every": 1}, "diverged", "learning rate 1e+30"),
        ({"batch_tokens": 8}, "bad_data", "training.batch_tokens"),
        ({"updates": 0}, "bad_configuration", "training.updates"),
        ({"precision": "tf32"}, "bad_configuration", "training.precision"),
    ],
)
def test_an_invalid_training_is_refused_with_its_reason(
    tmp_path: Path, change: dict[str, float], reason: str, field: str
) -> None:
    job = write_job(tmp_path)
    content = json.loads(job.read_text())
    content["config"]["training"] |= change
    job.write_text(json.dumps(content))
    answer = run(job)
    assert answer["reason"] == reason
    assert field in answer["message"]
    for file in job.parent.glob("checkpoints/*/model.safetensors"):
        assert all(bool(tensor.isfinite().all()) for tensor in load_file(file).values())


@pytest.mark.parametrize("spoiled", ["shards", "dev", "vocabulary"])
def test_an_empty_or_foreign_input_is_bad_data(tmp_path: Path, spoiled: str) -> None:
    job = write_job(tmp_path)
    shutil.rmtree(tmp_path / spoiled)
    if spoiled == "vocabulary":
        write_vocabulary(tmp_path / spoiled, size=20)  # fewer than the shards need
    else:
        write_shards(tmp_path / spoiled, [], files=1)
    assert run(job)["reason"] == "bad_data"


@pytest.mark.parametrize(
    "change",
    [
        {"batching": "mixed", "optimizer": "adamw", "weight_decay": 0.1},
        {"batching": "packed"},
        {"attention_coverage_encoder": 0.1, "attention_coverage_cross": 0.1},
    ],
)
def test_every_training_option_learns_and_resumes(tmp_path: Path, change: dict[str, Any]) -> None:
    training = replace(TRAINING, updates=120, dev_every=60, checkpoint_every=40, peak=1e-2, **change)
    model = replace(MODEL, d_model=32, p_drop=0.02)
    whole, stopped = (write_job(tmp_path, name=n, model=model, training=training) for n in ("whole", "stopped"))
    assert run(whole)["reason"] == "done"
    nll = [row["nll"] for row in rows(whole) if "nll" in row]
    assert np.mean(nll[-10:]) < 0.8 * np.mean(nll[:10])
    answer = run(stopped, before=lambda: end_after(update=31))
    assert answer["reason"] == "preempted"
    assert "update 31 of 120" in answer["message"]
    assert run(stopped)["reason"] == "done"
    assert weights(stopped) == weights(whole)


@pytest.mark.slow
@pytest.mark.parametrize("batching", ["buckets", "packed"])
def test_a_compiled_training_is_the_plain_one(tmp_path: Path, batching: Any) -> None:
    model, training = replace(MODEL, p_drop=0.0), replace(TRAINING, batching=batching)
    plain = write_job(tmp_path, name="plain", model=model, training=training)
    compiled = write_job(tmp_path, name="compiled", model=model, training=training, compile="always")
    for job in (plain, compiled):
        assert run(job, in_float64)["reason"] == "done"
    assert_same_training(plain, compiled)


def test_gradients_are_clipped_and_their_norm_is_reported_unclipped(tmp_path: Path) -> None:
    free, clipped = (
        write_job(
            tmp_path, name=name, training=replace(TRAINING, updates=1, checkpoint_every=1, keep=1, clip_norm=norm)
        )
        for name, norm in (("free", 0.0), ("clipped", 0.1))
    )
    trainers = [build_trainer(Job.read(job), Ranks()) for job in (free, clipped)]
    for trainer in trainers:
        trainer.train_step(next(trainer.updates()))
    norms = [float(trainer.step.gradient_norm()) for trainer in trainers]
    assert norms[0] == norms[1] > 0.2
    lengths = [
        float(torch.nn.utils.get_total_norm([p.grad for p in trainer.step.model.parameters() if p.grad is not None]))
        for trainer in trainers
    ]
    assert lengths == pytest.approx([norms[0], 0.1], rel=1e-4)


@pytest.mark.skipif(not has_bf16(), reason="NOT RUN: this CPU has no bfloat16")
def test_bf16_trains_like_fp32_on_a_cpu_that_has_it(tmp_path: Path) -> None:
    settings: list[tuple[Any, Any]] = [("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16")]
    jobs = [
        write_job(
            tmp_path,
            name=f"{precision}-{residual}",
            training=replace(TRAINING, precision=precision, residual=residual, dev_every=12, dev_bleu=4),
        )
        for precision, residual in settings
    ]
    exact, *coarse = (run(job)["facts"] for job in jobs)
    for facts in coarse:
        assert facts["dev_perplexity"] == pytest.approx(exact["dev_perplexity"], rel=0.03)
    assert len({str(weights(job)) for job in jobs}) == 3


def test_weight_decay_is_for_matrices(tmp_path: Path) -> None:
    training = replace(TRAINING, optimizer="adamw", weight_decay=0.3)
    optimizer = build_trainer(Job.read(write_job(tmp_path, training=training)), Ranks()).step.optimizer
    decays = {p.dim(): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decays == {2: 0.3, 1: 0.0}
