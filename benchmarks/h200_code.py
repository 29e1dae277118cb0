"""Counts what Inductor would run on an H200, on a machine without one: ``python benchmarks/h200_code.py --help``.

The layers and the loss are traced on the CPU; their graphs are moved to a device that only claims to exist; Inductor
writes its code and stops before Triton compiles it. Needs Triton, as the CUDA wheels of torch bring it. Kernels, bytes
and operations of the products are those of the code, not measured. It changes torch for the whole process.
"""

import argparse
import copy
import importlib
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # read when torch is imported
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
import torch._inductor.config
import torch._inductor.scheduler
import torch.utils._triton
import triton
from torch import Tensor
from torch._dynamo.device_interface import CudaInterface
from torch._inductor.debug import DebugContext
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses import fake_tensor
from triton.backends.compiler import GPUTarget

from benchmarks.comparison import SIZES
from benchmarks.machine import aligned
from model.config import Training
from model.data.batches import Batch
from model.network import linear
from model.network.attention import PackedMask, SequenceOffsets
from model.network.dropout import Dropout
from model.network.transformer import DecoderLayer, EncoderLayer, Packing, Transformer
from model.network.widths import Widths
from model.training.distributed import Ranks
from model.training.loss import CHUNK_LOGITS, Objective, softmax_gradient
from model.training.whole_step import WholeStep

compile_fx: Any = importlib.import_module("torch._inductor.compile_fx")  # internals without types
patch: Any = mock.patch

POSITIONS, SENTENCES, LONGEST = 25_024, 1_088, 151
"""Of a batch of 25,000 tokens of WMT's lengths."""
DEVICE = torch.device("cuda:0")
PROPERTIES = types.SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    warp_size=32,
    total_memory=150 << 30,
    regs_per_multiprocessor=65_536,
    max_threads_per_multi_processor=2_048,
    max_threads_per_block=1_024,
    shared_memory_per_block=49_152,
    shared_memory_per_block_optin=232_448,
    L2_cache_size=60 << 20,
    gcnArchName="",
    is_integrated=0,
)


@dataclass(frozen=True)
class Graph:
    """The code of one graph: its Triton kernels, its products (with their operations) and its other operators.

    ``triton_bytes`` and ``product_bytes`` are read and written, each tensor once a kernel.
    """

    name: str
    kernels: int
    triton_bytes: int
    products: int
    product_bytes: int
    flops: int
    operators: dict[str, int]


class _Written(Exception):
    """Inductor has written its code."""


class _Driver:
    """Triton's driver for a device that nothing runs on."""

    is_active = staticmethod(lambda: True)

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> torch.device:
        return DEVICE

    def get_current_device(self) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cuda


_written: list[tuple[bool, str, Any]] = []
"""Of each graph: whether it is a backward pass, its code, and its bytes by kernel."""


def _write(lowered: GraphLowering) -> None:
    code, _ = lowered.codegen()
    _written.append((bool(lowered.is_backward), code.value, lowered.count_bytes()[1]))
    raise _Written


@contextmanager
def pretended_h200() -> Iterator[None]:
    """Have torch find an H200, while Inductor writes code."""
    cuda: dict[str, Callable[..., object]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_: PROPERTIES,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_name": lambda *_: PROPERTIES.name,
        "is_bf16_supported": lambda *_, **__: True,
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_, **__: None,
        "_lazy_init": lambda: None,
        "device": lambda _: nullcontext(),
        "_DeviceGuard": lambda _: nullcontext(),
        "set_device": lambda _: None,
        "synchronize": lambda *_: None,
        "_exchange_device": lambda _: 0,
        "_maybe_exchange_device": lambda _: 0,
    }
    interface: dict[str, Callable[..., object]] = {
        "is_available": lambda: True,
        "get_compute_capability": lambda *_: 90,
        "get_device_properties": lambda *_: PROPERTIES,
        "current_device": lambda: 0,
        "is_triton_capable": lambda *_: True,
        "raise_if_triton_unavailable": lambda *_: None,
    }
    worker: dict[str, Callable[..., object]] = {
        "get_device_properties": lambda *_: PROPERTIES,
        "current_device": lambda: 0,
    }
    with (
        patch.multiple(torch.cuda, **cuda),
        patch.multiple(CudaInterface, **{name: staticmethod(f) for name, f in interface.items()}),
        patch.multiple(CudaInterface.Worker, **{name: staticmethod(f) for name, f in worker.items()}),
        patch.object(fake_tensor, "init_gpu_context"),
        patch.object(torch.utils._triton, "has_triton", return_value=True),
        patch.object(torch._inductor.scheduler, "has_triton", return_value=True),
        patch.object(GraphLowering, "compile_to_module", _write),
    ):
        triton.runtime.driver.set_active(_Driver())
        yield


def on_device(graph: Any, inputs: Sequence[Any]) -> tuple[Any, list[Any], Any]:
    """A copy of a traced graph and of its inputs on ``DEVICE``, without memory, and their mode."""
    graph = copy.deepcopy(graph)
    for node in graph.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": DEVICE}
        node.args = torch.fx.node.map_aggregate(node.args, lambda a: DEVICE if isinstance(a, torch.device) else a)
    graph.recompile()
    modes = (x.fake_mode for x in inputs if isinstance(x, fake_tensor.FakeTensor))
    mode = next(modes, None) or fake_tensor.FakeTensorMode()
    with mode:
        moved = [
            torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=DEVICE) if isinstance(x, Tensor) else x
            for x in inputs
        ]
    return graph, moved, mode


def backend(graph: Any, inputs: Sequence[Any]) -> Any:
    """A backend for ``torch.compile`` that records the code, and computes nothing: outputs have no values."""
    return compile_fx.compile_fx(graph, inputs, inner_compile=_inner)


def _inner(graph: Any, inputs: Sequence[Any], **options: Any) -> Callable[[list[Any]], list[Any]]:
    [output] = [node for node in graph.graph.nodes if node.op == "output"]
    values = [node.meta["val"] if isinstance(node, torch.fx.Node) else node for node in output.args[0]]
    options = {"cudagraphs": compile_fx.BoxedBool(False), "graph_id": 0, **options}
    with pretended_h200():
        moved, given, mode = on_device(graph, inputs)
        with torch._guards.tracing(torch._guards.TracingContext(mode)), V.set_debug_handler(DebugContext()):
            try:
                compile_fx._InProcessFxCompile().codegen_and_compile(moved, given, [], options)
            except _Written:
                _flops.append(product_flops(graph))

    def run(arguments: list[Any]) -> list[Any]:
        arguments.clear()
        return [
            torch.empty_strided([int(n) for n in x.shape], [int(n) for n in x.stride()], dtype=x.dtype)
            if isinstance(x, Tensor)
            else x
            for x in values
        ]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


_flops: list[int] = []
PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten._addmm_activation.default)


def product_flops(graph: Any) -> int:
    """Operations of the matrix products of a traced graph: two for each multiplication."""
    total = 0
    for node in graph.graph.nodes:
        if node.target in PRODUCTS:
            one, other = (argument.meta["val"].shape for argument in node.args[-2:])
            total += 2 * int(one[0]) * int(one[1]) * int(other[1])
    return total


def collect(name: str) -> list[Graph]:
    """The graphs that were written since the last call."""
    found = []
    for (is_backward, code, by_node), flops in zip(_written, _flops, strict=True):
        called = re.findall(r"torch\.ops\.(\w+\.\w+)\.default\(", code)
        extern = [(node.is_extern(), 4 * elements) for node, elements in by_node]
        found.append(
            Graph(
                f"{name}, {'backward' if is_backward else 'forward'}",
                kernels=len(re.findall(r"^\s*triton_\w+\.run\(", code, re.M)),
                triton_bytes=sum(count for is_extern, count in extern if not is_extern),
                products=len(
                    re.findall(r"extern_kernels\.(?:addmm|mm)\(|ops\.aten\._addmm_activation\.default\(", code)
                ),
                product_bytes=sum(count for is_extern, count in extern if is_extern),
                flops=flops,
                operators={each: called.count(each) for each in sorted(set(called) - {"aten._addmm_activation"})},
            )
        )
    _written.clear()
    _flops.clear()
    return found


def count(size: str, operator: bool, residual: str = "fp32", fused: bool = True) -> list[Graph]:
    """The graphs of an encoder layer, a decoder layer and the loss, as a packed training in bfloat16 has them.

    ``operator``: sentences attend by ``model::packed_attention``, else by torch's varlen operator; ``residual`` is
    ``training.residual``; ``fused``: with the ReLU in its product.
    """
    torch._inductor.config.compile_threads = 1
    config, vocabulary = SIZES[size]
    widths = Widths(config.heads, config.d_k, config.d_v)
    torch._dynamo.reset()
    at = SequenceOffsets(torch.zeros(SENTENCES + 1, dtype=torch.int32), LONGEST)
    mask, causal = PackedMask(at, at), PackedMask(at, at, causal=True)
    memory = torch.zeros(POSITIONS, widths.heads * (widths.d_k + widths.d_v), dtype=torch.bfloat16, requires_grad=True)
    found = []
    with as_on_gpu(operator, fused):
        for name, layer, others in (
            ("encoder layer", EncoderLayer(config), (mask,)),
            ("decoder layer", DecoderLayer(config), ((memory,), causal, mask)),
        ):
            dtype = torch.bfloat16 if residual == "bf16" else torch.float32
            x = torch.zeros(POSITIONS, config.d_model, dtype=dtype, requires_grad=True)
            with torch.autocast("cpu", torch.bfloat16):
                out = torch.compile(layer.forward, backend=backend)(x, *others)
            torch.autograd.backward(out.sum())
            found += collect(name)
    logits = torch.empty(POSITIONS, vocabulary, dtype=torch.bfloat16)
    torch.compile(softmax_gradient, backend=backend)(logits, torch.zeros(POSITIONS, 1, dtype=torch.long), 0.1)
    return found + collect("loss")


def count_update(size: str, operator: bool, residual: str = "fp32") -> list[Graph]:
    """The one graph of a whole update without the optimizer (``model.training.whole_step``)."""
    torch._inductor.config.compile_threads = 1
    config, vocabulary = SIZES[size]
    torch._dynamo.reset()
    at, places = SequenceOffsets(torch.zeros(SENTENCES + 1, dtype=torch.int32), LONGEST), torch.zeros(POSITIONS).long()
    batch = Batch(places, places, places + 1, None, Packing(at, at, places, places), 0, POSITIONS)
    model = Transformer(config, vocabulary, vocabulary)
    model.residual_dtype = torch.bfloat16 if residual == "bf16" else None
    training, device = Training(batching="packed", precision="bf16"), torch.device("cpu")
    with as_on_gpu(operator), patch.dict(CHUNK_LOGITS, cpu=CHUNK_LOGITS["cuda"]):
        with patch.object(torch, "compile", lambda function, **_: function):
            optimizer = torch.optim.Adam(model.parameters())
            step = WholeStep(training, Objective(model, 0.1), optimizer, Ranks(), device, 0)
        with torch._dynamo.config.patch(trace_autograd_ops=True):
            torch.compile(step.losses_and_gradients, backend=backend, fullgraph=True, dynamic=False)(batch)
    return [replace(graph, name="whole update") for graph in collect("")]


@contextmanager
def as_on_gpu(operator: bool, fused: bool = True) -> Iterator[None]:
    """Have the model trace on a CPU the operations that it has on a GPU."""

    def by_varlen(mask: PackedMask, x: Tensor, memory: Tensor | None, widths: Widths, _: float) -> Tensor:
        q, k, v = (part.view(len(part), widths.heads, -1) for part in widths.split(x, memory))
        return mask._attend_varlen(q, k, v)

    with (
        patch.object(PackedMask, "attend", PackedMask.attend_by_operator if operator else by_varlen),
        patch.object(Dropout, "forward", lambda self, x: torch.native_dropout(x, self.p, True)[0]),
        patch.object(linear, "_fuses_relu", lambda _: fused),
    ):
        yield


def table(graphs: Sequence[Mapping[str, Any]]) -> str:
    """Format the counts."""
    rows = [["", "Triton kernels", "GB", "products", "GB", "TFLOP", "other operators"]]
    for graph in graphs:
        operators = ", ".join(f"{count} {name}" for name, count in graph["operators"].items())
        gigabytes = [f"{graph[kind] / 1e9:.2f}" for kind in ("triton_bytes", "product_bytes")]
        flops = f"{graph['flops'] / 1e12:.3f}"
        counts = [str(graph[kind]) for kind in ("kernels", "products")]
        rows.append([graph["name"], counts[0], gigabytes[0], counts[1], gigabytes[1], flops, operators])
    return "\n".join(aligned(rows))


def main() -> None:
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0].split(":")[0])
    flags.add_argument("--size", choices=("base", "big"), default="base")
    flags.add_argument("--attention", choices=("operator", "varlen"), default="operator")
    flags.add_argument("--residual", choices=("fp32", "bf16"), default="fp32", help="training.residual")
    flags.add_argument("--fused", action=argparse.BooleanOptionalAction, default=True, help="the ReLU in its product")
    flags.add_argument(
        "--whole", action="store_true", help="one graph, as with REPRO_COMPILE=update, not of each layer"
    )
    flags.add_argument("--json", type=Path, help="write the counts there")
    chosen = flags.parse_args()
    operator = chosen.attention == "operator"
    if chosen.whole:
        found = count_update(chosen.size, operator, chosen.residual)
    else:
        found = count(chosen.size, operator, chosen.residual, chosen.fused)
    graphs = [asdict(graph) for graph in found]
    print(table(graphs))
    if chosen.json:
        chosen.json.write_text(json.dumps({"torch": torch.__version__, "graphs": graphs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
