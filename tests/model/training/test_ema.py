"""Tests of the moving average of the weights: its values by torch's formula, resumed as uninterrupted, and averaged."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_training import MODEL, TRAINING, end_after, run, write_job
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from model.average import work
from model.errors import JobError
from model.job import Job
from model.network.transformer import Transformer
from model.network.weights import load_model
from model.training.optimizer import WeightAverage

EMA = replace(TRAINING, ema=0.6, checkpoint_every=1, keep=12)


def ema_of(job: Path, last: str = "00000012") -> dict[str, torch.Tensor]:
    [path] = job.parent.glob("checkpoints/*/ema.safetensors")
    assert path.parent.name == last
    return load_file(path)


def test_the_average_is_that_of_torch_after_its_first_updates() -> None:
    """torch starts at the first weights that it sees; ours gives later weights more than 1 - decay at first."""
    torch.manual_seed(1)
    model = Transformer(MODEL, 20, 20)
    own, theirs = WeightAverage(model, 0.9), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    theirs.update_parameters(model)
    first = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    assert all(torch.equal(own.tensors[name], weight) for name, weight in first.items())
    for update in range(100, 120):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight))
        own.add(update)
        theirs.update_parameters(model)
    for name, weight in theirs.module.named_parameters():
        torch.testing.assert_close(own.tensors[name], weight.detach())
        assert not torch.allclose(weight, first[name])


def test_the_average_of_a_training_by_hand(tmp_path: Path) -> None:
    """With the decays 2/11, 3/12 and 4/13, which are below 0.6."""
    job = write_job(tmp_path, training=replace(EMA, updates=3))
    assert run(job)["reason"] == "done"
    first, second, third = (load_file(job.parent / f"checkpoints/{n:08}/model.safetensors") for n in (1, 2, 3))
    still = write_job(tmp_path, name="still", training=replace(EMA, updates=1, peak=1e-9))
    run(still)
    initial = load_file(still.parent / "checkpoints/00000001/model.safetensors")
    for name, found in ema_of(job, "00000003").items():
        average = 2 / 11 * initial[name] + 9 / 11 * first[name]
        average = 3 / 12 * average + 9 / 12 * second[name]
        torch.testing.assert_close(found, 4 / 13 * average + 9 / 13 * third[name], atol=1e-6, rtol=1e-5)


def test_resumed_is_uninterrupted_and_weights_stay_the_same(tmp_path: Path) -> None:
    whole, stopped, without = (write_job(tmp_path, name=name, training=EMA) for name in ("whole", "stopped", "without"))
    content = json.loads(without.read_text())
    content["config"]["training"]["ema"] = 0.0
    without.write_text(json.dumps(content))
    run(whole)
    assert run(stopped, before=lambda: end_after(update=7))["reason"] == "preempted"
    assert run(stopped)["reason"] == "done"
    run(without)
    found, again = ema_of(whole), ema_of(stopped)
    assert all(torch.equal(found[name], again[name]) for name in found)
    last = "checkpoints/00000012/model.safetensors"
    assert (without.parent / last).read_bytes() == (whole.parent / last).read_bytes()
    assert not list(without.parent.rglob("ema.safetensors"))


def test_averaging_takes_the_moving_average(tmp_path: Path) -> None:
    job, out = write_job(tmp_path, training=EMA), tmp_path / "out"
    run(job)
    out.mkdir()
    chosen = Job({"averaging": {"count": 1, "which": "ema"}}, {"run": job.parent}, out)
    assert work(chosen) == {"checkpoints": 1, "first_update": 12, "last_update": 12}
    assert (out / "model.safetensors").read_bytes() == next(job.parent.rglob("ema.safetensors")).read_bytes()
    load_model(out)
    next(job.parent.rglob("ema.safetensors")).unlink()
    with pytest.raises(JobError, match=r"ema.safetensors cannot be read"):
        work(chosen)
