"""Tests of checkpoint averaging, and of the errors for checkpoints that cannot be averaged."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.average import average_checkpoints, last_checkpoints, work
from model.errors import JobError
from model.job import Job


def tensors(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(3, 5, generator=generator) * 10.0 ** (seed % 3) for name in ("a.weight", "b.weight")}


def run_with(folder: Path, checkpoints: dict[int, dict[str, Tensor]]) -> Path:
    for update, weights in checkpoints.items():
        path = folder / "checkpoints" / f"{update:08}"
        path.mkdir(parents=True)
        save_file(weights, path / "model.safetensors")
    (folder / "model.json").write_text('{"model": {}}\n')
    return folder


@pytest.mark.parametrize("count", [1, 3, 4])
def test_the_last_checkpoints_are_averaged_in_double_precision(tmp_path: Path, count: int) -> None:
    checkpoints = {update: tensors(update) for update in (9, 90, 1000, 20_000)}
    run = run_with(tmp_path / "run", checkpoints)
    (run / "checkpoints" / "00030000.tmp").mkdir()
    out = tmp_path / "out"
    out.mkdir()
    facts = work(Job({"averaging": {"count": count}}, {"run": run}, out))
    assert facts["checkpoints"] == count
    assert facts["last_update"] == 20_000
    found = load_file(out / "model.safetensors")
    for name in ("a.weight", "b.weight"):
        last = [checkpoints[update][name].double() for update in sorted(checkpoints)[-count:]]
        assert torch.equal(found[name], (sum(last[1:], last[0]) / count).float())
    assert (out / "model.json").read_bytes() == (run / "model.json").read_bytes()


def test_all_that_were_kept_are_averaged(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {update: tensors(update) for update in (9, 90, 1000)})
    found = []
    for name, averaging in (("last", {"count": 3}), ("kept", {"count": 1, "which": "kept"})):
        (tmp_path / name).mkdir()
        assert work(Job({"averaging": averaging}, {"run": run}, tmp_path / name))["checkpoints"] == 3
        found.append((tmp_path / name / "model.safetensors").read_bytes())
    assert found[0] == found[1]


def test_too_few_checkpoints(tmp_path: Path) -> None:
    two = run_with(tmp_path, {1: tensors(1), 2: tensors(2)})
    for count, folder in ((3, two), (1, tmp_path / "none"), (0, tmp_path / "none")):
        with pytest.raises(JobError, match=r"averaging\.count"):
            last_checkpoints(folder, count)


@pytest.mark.parametrize("damage", ["truncated", "removed"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, damage: str) -> None:
    run = run_with(tmp_path, {1: tensors(1), 2: tensors(2), 3: tensors(3)})
    found = last_checkpoints(run, 3)
    path = run / "checkpoints" / "00000002" / "model.safetensors"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-7])
    else:
        path.unlink()
    with pytest.raises(JobError, match="00000002"):
        average_checkpoints(found)


@pytest.mark.parametrize(
    "odd",
    [
        {"a.weight": torch.zeros(3, 5)},
        {**tensors(1), "c.weight": torch.zeros(1)},
        {**tensors(1), "b.weight": torch.zeros(5, 3)},
        {**tensors(1), "b.weight": torch.full((3, 5), torch.nan)},
    ],
    ids=["one less", "one more", "another shape", "not finite"],
)
def test_a_checkpoint_that_does_not_fit_the_others_is_named(tmp_path: Path, odd: dict[str, Tensor]) -> None:
    run = run_with(tmp_path, {1: tensors(1), 2: odd})
    with pytest.raises(JobError, match=r"00000002.*[bc]\.weight"):
        average_checkpoints(last_checkpoints(run, 2))
