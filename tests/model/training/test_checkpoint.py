"""Tests of checkpoints: deterministic bytes, fallback from damage, and retention for averaging."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from small_training import MODEL, TRAINING

from model.errors import JobError
from model.network import weights
from model.network.transformer import Transformer
from model.network.weights import load_model, save_model
from model.training import checkpoint
from model.training.checkpoint import CheckpointPolicy, Checkpoints, read_best_update
from model.training.position import Position


def made(seed: int = 0) -> tuple[Transformer, torch.optim.Adam]:
    """A model and its optimiser after one update."""
    torch.manual_seed(seed)
    model = Transformer(MODEL, 20, 20)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    model(torch.tensor([[5, 2]]), torch.tensor([[1, 6]])).sum().backward()
    optimizer.step()
    return model, optimizer


def test_a_model_comes_back_and_is_the_same_bytes(tmp_path: Path) -> None:
    model, _ = made()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    save_model(tmp_path / "a", model)
    again = load_model(tmp_path / "a")
    save_model(tmp_path / "b", again)
    for name in ("model.safetensors", "model.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert not again.training
    assert again.config == MODEL


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_damaged_model_or_one_of_another_shape_is_named(tmp_path: Path, name: str) -> None:
    save_model(tmp_path, made()[0])
    os.truncate(tmp_path / name, 50)
    with pytest.raises(JobError, match=name):
        load_model(tmp_path)
    save_model(tmp_path, Transformer(replace(MODEL, d_ff=8), 20, 20))
    weights.save_model_config(tmp_path, made()[0])
    with pytest.raises(JobError, match=r"model\.safetensors"):
        load_model(tmp_path)


def checkpoints_in(folder: Path, keep: int = 2) -> Checkpoints:
    return Checkpoints(folder, CheckpointPolicy(replace(TRAINING, checkpoint_every=10, keep=keep, updates=45)))


def fail(update: int, sentence: str) -> None:
    pytest.fail(f"{update}: {sentence}")


def saved(folder: Path, *updates: int) -> Checkpoints:
    checkpoints = checkpoints_in(folder, keep=2)
    model, optimizer = made()
    for update in updates:
        checkpoints.save(model, optimizer, Position(update=update, epoch=update // 7))
    return checkpoints


@pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors", "position.json"])
@pytest.mark.parametrize("damage", ["cut", "altered", "gone"])
def test_a_broken_checkpoint_falls_back_to_the_one_before(tmp_path: Path, name: str, damage: str) -> None:
    checkpoints = saved(tmp_path, 10, 17)
    broken = checkpoints.path(17) / name
    content = broken.read_bytes()
    if damage == "gone":
        broken.unlink()
    else:
        middle = len(content) // 2
        altered = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        broken.write_bytes(content[:-9] if damage == "cut" else altered)
    messages: list[str] = []
    model, optimizer = made(seed=1)
    position = checkpoints.resume(model, optimizer, lambda _, sentence: messages.append(sentence))
    assert position.update == 10
    assert len(messages) == 1
    assert "00000017" in messages[0]
    checkpoints.remove_after(position.update)
    assert checkpoints.updates() == [10]


def test_no_training_begins_again_because_its_disk_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = saved(tmp_path, 10, 17)
    monkeypatch.setattr(checkpoint, "sha256", Mock(side_effect=OSError(errno.ESTALE, "not now")))
    with pytest.raises(OSError, match="not now"):
        checkpoints.resume(*made(1), fail)
    monkeypatch.undo()
    assert checkpoints.resume(*made(1), fail).update == 17


def test_without_a_usable_checkpoint_training_starts_from_the_beginning(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 10)
    (checkpoints.path(10) / "state.safetensors").unlink()
    messages: list[str] = []
    assert checkpoints.resume(*made(), lambda _, sentence: messages.append(sentence)) == Position()
    assert len(messages) == 1


def test_weights_for_averaging_stay_and_optimizer_states_are_removed(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 7, 10, 13, 20, 25, 30, 38, 40)
    assert checkpoints.updates() == [30, 38, 40]
    assert not (checkpoints.path(30) / "state.safetensors").exists()
    assert (checkpoints.path(38) / "state.safetensors").exists()
    model, optimizer = made()
    checkpoints.save(model, optimizer, Position(update=45))
    checkpoints.finish()
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    last = {f"checkpoints/00000045/{name}" for name in ("model.safetensors", "state.safetensors", "position.json")}
    assert files == {"checkpoints/00000040/model.safetensors", *last}, "a longer training can go on from the last"


def test_the_best_of_both_newest_checkpoints_stays(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path, keep=1)
    model, optimizer = made()
    for update, best in ((4, 4), (8, 8), (10, 8), (16, 16), (20, 16), (23, 16)):
        checkpoints.save(model, optimizer, Position(update=update, best_update=best))
        assert {best, update} <= set(checkpoints.updates())
        if update == 16:
            assert checkpoints.updates() == [8, 10, 16], "a resume from 10 needs its best, 8"
    assert checkpoints.updates() == [16, 20, 23]
    checkpoints.save(model, optimizer, Position(update=45, best_update=16))
    checkpoints.write_best(Position(update=45, best_update=16, best_dev_perplexity=4.5))
    for _ in range(2):
        checkpoints.finish()
        files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
        assert files == {
            *(f"checkpoints/00000045/{name}" for name in ("model.safetensors", "state.safetensors", "position.json")),
            "checkpoints/best.json",
            "checkpoints/best/model.safetensors",
        }
    assert read_best_update(tmp_path / "checkpoints") == 16


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = saved(tmp_path, 10)
    write = weights.save_tensors

    def full(path: Path, tensors: dict[str, torch.Tensor]) -> None:
        write(path, tensors)
        if path.name == "state.safetensors":
            os.truncate(path, 100)
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(checkpoint, "save_tensors", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(*made(seed=1), Position(update=20))
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000010"]
    assert checkpoints.resume(*made(seed=1), fail).update == 10


def test_a_checkpoint_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 10)
    file = checkpoints.path(10) / "position.json"
    record = json.loads(file.read_text())
    record = {"position": record["position"] | {"skipped": 0, "gpu_kwh": 0.5}, "sums": record["sums"]}
    file.write_text(json.dumps(record | {"sum": checkpoint.checksum(record)}))
    assert checkpoints.resume(*made(seed=1), fail) == Position(update=10, epoch=1)


def test_a_partial_checkpoint_is_removed(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 10)
    checkpoints.path(20).with_suffix(".partial").mkdir()
    assert checkpoints_in(tmp_path, keep=2).updates() == [10]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000010"]


def test_an_older_checkpoint_goes_only_when_the_newer_one_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rmtree = os.fsync, checkpoint.shutil.rmtree

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        calls.append(f"synced {Path(f'/proc/self/fd/{descriptor}').readlink().relative_to(tmp_path)}")

    def removed(path: Path, *, ignore_errors: bool = False) -> None:
        rmtree(path, ignore_errors=ignore_errors)
        calls.append(f"removed {path.relative_to(tmp_path)}")

    saved(tmp_path, 10, 20, 30)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(checkpoint.shutil, "rmtree", removed)
    saved(tmp_path, 40)
    partial = "checkpoints/00000040.partial"
    files = {f"synced {partial}/{name}" for name in ("model.safetensors", "state.safetensors", "position.json")}
    assert files <= set(calls[: calls.index(f"synced {partial}")])
    assert calls[-2:] == ["synced checkpoints", "removed checkpoints/00000020"]
