"""Tests that a CPU and a GPU pass alike; on a GPU with ``pytest -m gpu``."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from patience import limit
from small_training import SIZE, TRAINING, pairs, rows, weights, write_job, write_vocabulary
from torch import Tensor, nn

from model.config import Decoding, Model
from model.data.batches import Cursor
from model.data.bpe import TokenizerPair
from model.data.packing import BatchShape
from model.decoding.cached_decoder import CachedDecoder, decoder_starter
from model.decoding.translator import Translator
from model.job import Job
from model.network.transformer import Transformer
from model.training.distributed import Ranks
from model.training.setup import build_trainer

ROOT = Path(__file__).resolve().parents[2]
WIDE = Model(layers=2, d_model=64, d_ff=128, heads=2, d_k=32, d_v=32, p_drop=0.0, norm="pre")
SHAPE = BatchShape(384, 384, 64, 10, 10)
INTERRUPTED = """
import small_training
small_training.end_after({update})
small_training.run_job(small_training.work)
"""


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def train(path: Path, end_after: int = 10**9) -> None:
    """Train in a separate process, since CUDA does not survive a fork; it is asked to end after an update."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])}
    command = [sys.executable, "-c", INTERRUPTED.format(update=end_after), str(path)]
    subprocess.run(command, env=environment, check=False, timeout=limit(60.0))


@pytest.mark.slow  # three processes that import torch
def test_a_resumed_packed_training_is_the_uninterrupted_one_to_the_bit(tmp_path: Path, device: str) -> None:
    precision: Any = "bf16" if device == "cuda" else "fp32"
    training = replace(TRAINING, updates=90, checkpoint_every=30, dev_every=45, peak=1e-2, batching="packed")
    # Packed batches on a GPU have no dropout of attention weights.
    model = replace(WIDE, p_drop=0.1, p_drop_attention=0.1 if device == "cpu" else 0.0)
    settings = {"model": model, "training": replace(training, precision=precision), "device": device}
    whole, stopped = (write_job(tmp_path, name=name, **settings) for name in ("whole", "stopped"))
    train(whole)
    train(stopped, end_after=20)
    assert len(weights(stopped)) == 1
    train(stopped)
    assert weights(stopped) == weights(whole)
    assert len(weights(whole)) > 1
    nll = [row["nll"] for row in rows(whole) if "nll" in row]
    assert np.mean(nll[-10:]) < 0.9 * np.mean(nll[:10]), "it learns"


@pytest.fixture
def group_of_one(device: str, tmp_path: Path) -> Iterator[None]:
    """A process group with this process alone: gloo on a CPU, NCCL on a GPU."""
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group_of_one")
def test_an_update_in_parts_is_the_whole_and_sums_over_ranks_once(tmp_path: Path, device: str) -> None:
    precision: Any = "bf16" if device == "cuda" else "fp32"
    training = replace(TRAINING, batch_tokens=400, precision=precision)  # all pairs
    parts: list[int] = []
    sums: list[int] = []

    def gradients(most: int) -> Tensor:
        path = write_job(tmp_path, model=WIDE, training=training, device=device, name=f"most-{most}", compile="never")
        trainer = build_trainer(Job.read(path), Ranks())
        step = trainer.step
        wrapped = nn.parallel.DistributedDataParallel(step.objective, broadcast_buffers=False)
        step.ddp_objective = wrapped

        def count(state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
            sums[-1] += bucket.is_last()
            done: torch.futures.Future[Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        wrapped.register_comm_hook(None, count)
        reader = replace(trainer.reader, micro_batch_tokens=most)
        update = next(reader.read_from(Cursor(), 1))
        parts.append(len(update.micro_batches))
        sums.append(0)
        step.compute_gradients(update)
        return torch.cat([p.grad.flatten() for p in step.model.parameters()]).cpu()

    whole, accumulated = gradients(0), gradients(60)
    assert parts[0] == 1
    assert parts[1] > 2
    assert sums == [1, 1], "gradients of all parts but the last stay on their rank"
    assert torch.cosine_similarity(whole, accumulated, dim=0) > (0.99 if device == "cuda" else 0.99999)
    assert float(accumulated.norm()) == pytest.approx(float(whole.norm()), rel=2e-2 if device == "cuda" else 1e-4)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_batch_is_searched_as_each_sentence_alone_on_a_cpu(tmp_path: Path, device: str, beam: int) -> None:
    torch.manual_seed(0)
    model = Transformer(WIDE, SIZE, SIZE).double().eval()
    vocabulary = TokenizerPair.load(write_vocabulary(tmp_path / "vocabulary"))
    sources = [source for source, _ in pairs(20)]
    decoding = Decoding(beam=beam, max_extra=10)
    one = Translator(model, vocabulary, torch.device("cpu"))
    alone = [one.search([source], decoding)[0] for source in sources]
    found = Translator(model.to(device), vocabulary, torch.device(device)).search(sources, decoding)
    assert [hypothesis.pieces for hypothesis in found] == [hypothesis.pieces for hypothesis in alone]
    assert len({tuple(hypothesis.pieces) for hypothesis in alone}) > 5


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_search_in_bfloat16_has_logits_near_those_of_float32(device: str, norm: Any) -> None:
    torch.manual_seed(0)
    model = Transformer(replace(WIDE, norm=norm), SIZE, SIZE).to(device).eval()
    sources, pieces = (torch.randint(4, SIZE, (5, count)).to(device) for count in (7, 5))
    found = []
    for bfloat16 in (False, True):
        decoder = decoder_starter(model, bfloat16)(sources)
        assert isinstance(decoder, CachedDecoder)
        with torch.inference_mode():
            found.append(torch.stack([decoder.advance(pieces_R) for pieces_R in pieces]))
        kept = {decoder.past.buffer.dtype, *(x.dtype for memory in decoder.memories for x in memory)}
        assert kept == {torch.bfloat16 if bfloat16 else torch.float32}
    exact, narrow = found
    assert narrow.dtype == torch.float32
    assert not torch.equal(exact, narrow)
    assert float((narrow - exact).norm() / exact.norm()) < 1e-2
    assert not torch.equal(narrow, narrow.bfloat16().float()), "logits are not rounded"
