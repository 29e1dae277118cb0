"""Tests of which operator attends over packed sentences on a GPU, and of torch's for long ones, with stand-ins."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_training import MODEL, SIZE, TRAINING, pairs, write_job, write_shards
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from model.config import Model
from model.config.job_checks import check_packed_attention
from model.data.batches import load_packed
from model.data.packing import BatchShape
from model.data.shards import Shards
from model.job import Job
from model.network import attention
from model.network.attention import LONGEST, WIDEST, PackedMask, SequenceOffsets
from model.network.packed_attention import OPERATORS, PackedAttention
from model.network.transformer import Transformer
from model.network.varlen_attention import varlen_attention
from model.network.widths import Widths
from model.training.distributed import Ranks
from model.training.precision import configure_training
from model.training.setup import build_trainer

SIZES = Widths(2, 8, 8)
PACKED = replace(TRAINING, batching="packed", precision="bf16")
CPU, GPU = torch.device("cpu"), torch.device("cuda")


class Called(TorchDispatchMode):
    """Collects the names of this package's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == OPERATORS:
            self.names.append(func._opname)
        return func(*args, **kwargs or {})


def operators(longest: tuple[int, int], p_drop: float, which: PackedAttention, width: int) -> list[str]:
    """The operators of a cross-attention whose sides have these bounds; a backward pass would need the device."""
    with FakeTensorMode(), Called() as called:
        queries, keys = (
            SequenceOffsets(torch.tensor([0, 5, 9], dtype=torch.int32, device="cuda"), bound) for bound in longest
        )
        x = torch.randn(9, 2 * width, device="cuda")
        memory = torch.randn(9, 4 * width, device="cuda")
        out = PackedMask(queries, keys, attention=which).attend(x, memory, Widths(2, width, width), p_drop)
    assert out.shape == (9, 2 * width)
    return called.names


OWN, VARLEN = ["packed_attention"], ["varlen_attention"]


@pytest.mark.parametrize(
    ("longest", "p_drop", "which", "triton", "expected"),
    [
        ((9, 9), 0.0, "auto", True, OWN),
        ((LONGEST, LONGEST), 0.0, "auto", True, OWN),
        ((LONGEST + 1, 9), 0.0, "auto", True, VARLEN),
        ((9, LONGEST + 1), 0.0, "auto", True, VARLEN),
        ((9, LONGEST + 1), 0.1, "auto", True, OWN),  # varlen drops no weights
        ((9, 9), 0.0, "auto", False, VARLEN),
        ((9, 9), 0.0, "varlen", True, VARLEN),
        ((9, LONGEST + 1), 0.0, "own", True, OWN),
    ],
)
def test_on_a_gpu_sentences_up_to_a_limit_have_the_own_operator(
    monkeypatch: pytest.MonkeyPatch,
    longest: tuple[int, int],
    p_drop: float,
    which: PackedAttention,
    triton: bool,
    expected: list[str],
) -> None:
    monkeypatch.setattr(attention, "HAS_TRITON", triton)
    assert operators(longest, p_drop, which, 8) == expected


def test_on_a_gpu_wide_heads_have_torchs_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "HAS_TRITON", True)
    assert [operators((9, 9), 0.0, "auto", width) for width in (WIDEST, WIDEST + 8)] == [OWN, VARLEN]


def test_a_cpu_attends_over_padded_rows_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "HAS_TRITON", True)
    offsets = SequenceOffsets(torch.tensor([0, 5, 9], dtype=torch.int32), 5)
    found = []
    for which in ("auto", "own"):
        x = torch.randn(9, 48, generator=torch.Generator().manual_seed(0), requires_grad=True)
        with Called() as called:
            out = PackedMask(offsets, offsets, causal=True, attention=which).attend(x, None, SIZES, 0.0)
        found.append((out, *torch.autograd.grad(out.square().sum(), x)))
        assert called.names == ([] if which == "auto" else OWN)
    torch.testing.assert_close(*found)


def test_a_training_attends_as_its_site_says(tmp_path: Path) -> None:
    trainer = build_trainer(
        Job.read(write_job(tmp_path, model=MODEL, training=replace(PACKED, precision="fp32"), packed_attention="own")),
        Ranks(),
    )
    assert trainer.step.model.packed_attention == "own"
    with Called() as called:
        trainer.train_step(next(trainer.updates()))
    assert called.names == [*3 * OWN, *3 * ["packed_attention_backward"]], (
        "encoder, decoder and cross-attention of one layer"
    )


@pytest.mark.parametrize(
    ("p_drop", "on_cpu", "why"), [(0.0, True, "on a CPU"), (0.1, False, "where model.p_drop_attention is above 0")]
)
def test_torchs_operator_is_refused_where_it_cannot_attend(p_drop: float, on_cpu: bool, why: str) -> None:
    model = replace(MODEL, p_drop_attention=p_drop)
    check_packed_attention(model, PACKED, "auto", on_cpu=on_cpu)
    check_packed_attention(model, TRAINING, "varlen", on_cpu=on_cpu)
    check_packed_attention(MODEL, PACKED, "varlen", on_cpu=False)
    with pytest.raises(ValueError, match=f"REPRO_PACKED_ATTENTION.* is 'varlen', allowed is auto or own {why}"):
        check_packed_attention(model, PACKED, "varlen", on_cpu=on_cpu)


def test_the_own_operator_is_refused_on_a_gpu_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.training.precision.HAS_TRITON", False)
    configure_training(MODEL, PACKED, GPU)
    with pytest.raises(ValueError, match="REPRO_PACKED_ATTENTION.* is 'own', allowed is auto or varlen"):
        configure_training(MODEL, PACKED, GPU, "own")


def one_by_one(
    q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor, causal: bool, grad: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Attention sentence by sentence, as the GPU kernel is documented, or its gradients for ``grad``."""
    parts = []
    for a, b, c, d in zip(starts_q, starts_q[1:], starts_k, starts_k[1:], strict=False):
        q_HTK, k_HSK, v_HSV = q[a:b].transpose(0, 1), k[c:d].transpose(0, 1), v[c:d].transpose(0, 1)
        scores = q_HTK @ k_HSK.transpose(1, 2) / q.shape[-1] ** 0.5
        hidden = torch.ones_like(scores, dtype=torch.bool).tril().logical_not() & causal
        p_HTS = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        if grad is None:
            parts.append([p_HTS @ v_HSV])
            continue
        grad_HTV = grad[a:b].transpose(0, 1)
        grad_p = grad_HTV @ v_HSV.transpose(1, 2)
        slope = p_HTS * (grad_p - (p_HTS * grad_p).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
        parts.append([slope @ k_HSK, slope.transpose(1, 2) @ q_HTK, p_HTS.transpose(1, 2) @ grad_HTV])
    return tuple(torch.cat([x.transpose(0, 1) for x in each]) for each in zip(*parts, strict=True))


@pytest.fixture
def flash() -> Iterator[list[bool]]:
    """CPU kernels for torch's flash attention; gives, for each backward pass, whether torch was to be deterministic."""
    deterministic: list[bool] = []

    def forward(
        q: Tensor, k: Tensor, v: Tensor, at_q: Tensor, at_k: Tensor, most_q: int, most_k: int,
        p_drop: float, causal: bool, *_: Any, **words: Any,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        assert (p_drop, words["window_size_left"]) == (0.0, -1)
        assert words["window_size_right"] == (0 if causal else -1)
        assert int(at_q.diff().max()) <= most_q
        assert int(at_k.diff().max()) <= most_k
        nothing = q.new_empty(0)
        return one_by_one(q, k, v, at_q, at_k, causal)[0], q.new_zeros(q.shape[1], len(q)), nothing, nothing, nothing

    def backward(
        grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, at_q: Tensor, at_k: Tensor,
        most_q: int, most_k: int, p_drop: float, causal: bool, *_: Any, **words: Any,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        assert (p_drop, words["window_size_left"]) == (0.0, -1)
        assert words["window_size_right"] == (0 if causal else -1)
        assert (int(at_q.diff().max()) <= most_q, int(at_k.diff().max()) <= most_k) == (True, True)
        assert out.shape == (*q.shape[:2], v.shape[2])
        assert lse.shape == (q.shape[1], len(q))
        deterministic.append(torch.are_deterministic_algorithms_enabled())
        return one_by_one(q, k, v, at_q, at_k, causal, grad)

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_flash_attention_forward", forward, "CPU")
        library.impl("_flash_attention_backward", backward, "CPU")
        yield deterministic


@pytest.mark.parametrize("causal", [False, True])
def test_torchs_operator_has_the_values_and_gradients_of_the_definition(flash: list[bool], causal: bool) -> None:
    torch.manual_seed(0)
    lengths = (LONGEST + 12, 1, 40)
    at = torch.tensor([0, *lengths]).cumsum(0).int()
    inputs = [torch.randn(sum(lengths), 2, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    grad = torch.randn(sum(lengths), 2, 8, dtype=torch.float64)
    found = varlen_attention(*inputs, at, at, max(lengths), max(lengths), causal)[0]
    [exact] = one_by_one(*inputs, at, at, causal)
    torch.testing.assert_close(found, exact)
    for mine, theirs in zip(
        torch.autograd.grad(found, inputs, grad), torch.autograd.grad(exact, inputs, grad), strict=True
    ):
        torch.testing.assert_close(mine, theirs)
    assert flash == [True], "gradients are added in one order"
    assert not torch.are_deterministic_algorithms_enabled(), "during the backward pass alone"


@pytest.mark.usefixtures("flash")
def test_the_path_of_long_sentences_computes_the_same_and_compiles_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = Shards(write_shards(tmp_path / "shards", pairs(40)))
    shape = BatchShape(source=64, target=64, sentences=64, longest_source=10, longest_target=10)
    config = Model(layers=1, d_model=16, d_ff=24, heads=2, d_k=8, d_v=8, p_drop=0.0)
    batches = [load_packed(shards, np.array(rows), shape) for rows in ([3, 17, 5], [1, 2, 30, 31])]

    def built() -> Transformer:
        torch.manual_seed(0)
        return Transformer(config, SIZE, SIZE).eval()

    plain = [built()(b.source, b.target, b.packing) for b in batches]
    # Force the kernel's branch on a machine without a GPU.
    monkeypatch.setattr(PackedMask, "_attend_padded", PackedMask._attend_varlen)
    model, compiled = built(), []

    def count(graph: torch.fx.GraphModule, _: object) -> object:
        compiled.append(graph)
        return graph.forward

    for layer in (*model.encoder, *model.decoder):
        layer.compile(backend=count, fullgraph=True)
    for batch, expected in zip(batches, plain, strict=True):
        torch.testing.assert_close(model(batch.source, batch.target, batch.packing), expected, atol=1e-5, rtol=1e-4)
    assert len(compiled) == 2, "the second batch was compiled again"
