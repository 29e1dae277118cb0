"""Tests of the copies between host and device, on a device that counts them: one to it in an update, which waits for
nothing, and one each way in a step of a search."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from counted_device import DEVICE, CountedDevice
from small_training import MODEL, SIZE, TRAINING, pairs, write_job, write_shards
from torch import Tensor, nn

from model.config import Decoding
from model.config.special_pieces import EOS
from model.data.batches import load_packed, load_padded
from model.data.packing import BatchShape
from model.data.shards import Shards
from model.decoding.beam_search import SearchConstraints, beam_search
from model.decoding.cached_decoder import decoder_starter
from model.decoding.translator import SPECIAL_IDS, pad_sequences
from model.job import Job
from model.network.transformer import Transformer
from model.training import loss, step, whole_step
from model.training.distributed import Ranks
from model.training.setup import build_trainer
from model.training.step import TrainingStep
from model.training.whole_step import WARM_UPDATES, WholeStep

PACKED = replace(TRAINING, batching="packed", clip_norm=0.5)
DROPPING = replace(MODEL, p_drop_attention=0.1)


@pytest.fixture
def known_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the code and torch ask by the name of a device."""
    monkeypatch.setitem(loss.CHUNK_LOGITS, DEVICE.type, 1 << 23)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)
    adam = sys.modules["torch.optim.adam"]
    monkeypatch.setattr(adam, "_get_capturable_supported_devices", lambda **_: [DEVICE.type])
    for module in (step, whole_step):
        monkeypatch.setattr(module, "autocast", lambda *_: torch.enable_grad())
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def move(module: nn.Module) -> None:
    """``module.to(DEVICE)``, which torch does not do for tensors of a class of their own."""
    for each in module.modules():
        for name, parameter in each.named_parameters(recurse=False):
            setattr(each, name, nn.Parameter(parameter.detach().to(DEVICE)))
        for name, buffer in each.named_buffers(recurse=False):
            setattr(each, name, buffer.to(DEVICE))


@pytest.mark.usefixtures("known_device")
@pytest.mark.parametrize(("kind", "coverage"), [(TrainingStep, 0.0), (TrainingStep, 0.5), (WholeStep, 0.0)])
def test_an_update_is_one_copy_to_the_device_and_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[TrainingStep], coverage: float
) -> None:
    monkeypatch.setattr(WholeStep, "record", staticmethod(lambda work: work))
    training = replace(PACKED, attention_coverage_encoder=coverage, attention_coverage_cross=coverage)
    trainer = build_trainer(Job.read(write_job(tmp_path, model=DROPPING, training=training)), Ranks())
    objective, updates, losses = trainer.step.objective, trainer.updates(), []
    with CountedDevice() as device:
        move(objective)
        optimizer = torch.optim.Adam(objective.parameters(), foreach=False)
        counted = kind(PACKED, objective, optimizer, Ranks(), DEVICE, 0)
        optimizer.param_groups[0]["capturable"] = True
        for number in range(1, WARM_UPDATES + 3):
            device.clear()
            losses.append(counted(next(updates), number).sums)
            assert len(device.to_device) == 1
            assert not device.to_host
        assert len({float(sums[0]) for sums in losses}) == len(losses)
        assert len(device.to_host) == len(losses), "reading a loss is counted"


def test_a_batch_in_one_buffer_is_the_same_and_aligned(tmp_path: Path) -> None:
    shards, some = Shards(write_shards(tmp_path / "shards", pairs(40))), np.arange(30)
    for batch in (load_packed(shards, some, BatchShape(384, 384, 64, 10, 10)), load_padded(shards, some)):
        with CountedDevice() as device:
            found = batch.to(DEVICE).each(Tensor.cpu)
            assert len(device.to_device) == 1
            batch.each(lambda x: x.to(DEVICE))
            assert len(device.to_device) == 1 + len(batch.tensors())
        for mine, theirs in zip(found.tensors(), batch.tensors(), strict=True):
            assert torch.equal(mine, theirs)
            assert mine.dtype == theirs.dtype
        assert all(x.storage_offset() * x.itemsize % 16 == 0 for x in batch.joined().tensors())


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_a_step_of_a_search_is_one_copy_each_way(beta: float) -> None:
    torch.manual_seed(0)
    model = Transformer(DROPPING, SIZE, SIZE).eval()
    sources = pad_sequences([[*source, EOS] for source, _ in pairs(6)], torch.device("cpu"))
    decoding = Decoding(beam=3, beta=beta)
    constraints = [SearchConstraints(length, min_length=min(length, 3)) for length in (9, 2, 5, 9, 1, 4)]
    steps: list[tuple[int, int]] = []

    def search(source_BS: Tensor) -> list[tuple[int, ...]]:
        decoder = decoder_starter(model)(source_BS, record_attention=beta > 0)
        advance = decoder.advance

        def counted(pieces_R: Tensor) -> Tensor:
            steps.append((len(device.to_device), len(device.to_host)))
            device.clear()
            return advance(pieces_R)

        decoder.advance = counted  # type: ignore[method-assign]
        found = beam_search(decoder, constraints, decoding, SPECIAL_IDS, source_BS.device)
        return [best.pieces for best, *_ in found]

    with CountedDevice() as device, torch.inference_mode():
        here = search(sources)
        assert steps == [(0, 0)] * 9
        steps.clear()
        move(model)
        there = search(sources.to(DEVICE))
    assert here == there
    assert len({len(pieces) for pieces in here}) > 2
    most = 2 if beta else 1  # a coverage penalty of what ended
    assert len(steps) == 9
    assert all(1 <= count <= most for step in steps[1:] for count in step), steps
