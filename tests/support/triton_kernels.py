"""Checks of the Triton kernels without a GPU: ``python triton_kernels.py interpret`` or ``compile``; needs Triton.

``interpret`` runs them in Triton's interpreter against float64, ``compile`` makes the code for an H100 or H200 and asks
ptxas for its registers. Each prints one line of JSON.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)
if sys.argv[1] == "interpret":
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined

import torch
import triton
from torch import Tensor

from model.network import packed_attention_triton as kernels
from model.network.attention import LONGEST
from model.network.packed_attention import packed_attention
from model.network.widths import Widths

LENGTHS = [1, 5, 28, 32, 33, 101, 9, 0, 0]
KEY_LENGTHS = [6, 31, 4, 64, 101, 33, 1, 0, 0]
"""Sentences of 1, of a tile (32), of one more, of three tiles and 5, and empty ones."""
AROUND_LIMIT, KEYS_AROUND_LIMIT = [LONGEST, LONGEST + 1, 2], [LONGEST + 1, 3, LONGEST]
"""The longest sentences that the kernels have by default, and longer ones, which they have with dropout."""


def let_numbers_be_indices() -> None:
    """Triton 3.6's interpreter makes ``int`` of arrays with one element, which numpy 2.4 and later refuses."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_more(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_more


def interpreted() -> list[dict[str, object]]:
    """For every kind of attention the errors of output and gradients relative to float64."""
    let_numbers_be_indices()
    found: list[dict[str, object]] = []
    for kind in ("self", "causal", "cross"):
        for p_drop in (0.0, 0.3):
            for d_k, d_v in ((32, 32), (8, 12)):
                settings = {"kind": kind, "p_drop": p_drop, "d_k": d_k, "d_v": d_v}
                found.append(settings | errors(kind, p_drop, Widths(2, d_k, d_v)))
        settings = {"kind": kind, "longest": LONGEST + 1}
        found.append(settings | errors(kind, 0.0, Widths(1, 16, 16), AROUND_LIMIT, KEYS_AROUND_LIMIT))
    return found


def errors(
    kind: str, p_drop: float, sizes: Widths, queries: list[int] = LENGTHS, others: list[int] = KEY_LENGTHS
) -> dict[str, float]:
    """The greatest error of output, row sums and gradients relative to float64 by plain torch."""
    torch.manual_seed(0)
    keys = others if kind == "cross" else queries
    queries_at, keys_at = (torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (queries, keys))
    own, other = sizes.heads * sizes.d_k, sizes.heads * (sizes.d_k + sizes.d_v)
    memory = torch.randn(sum(keys), other) if kind == "cross" else None
    x = torch.randn(sum(queries), own if kind == "cross" else own + other)
    grad = torch.randn(sum(queries), sizes.heads * sizes.d_v)
    seed = torch.tensor(0x1234567890ABCDEF) if p_drop else None
    causal = kind == "causal"

    wide = [None if y is None else y.double().requires_grad_() for y in (x, memory)]
    expected, lse = packed_attention(
        *wide, queries_at, keys_at, max(queries), max(keys), list(sizes), causal, p_drop, seed
    )
    expected.backward(grad.double())

    out, sums = kernels.forward(x, memory, queries_at, keys_at, sizes, causal, p_drop, seed)
    grads = [None if y is None else torch.full_like(y, torch.nan) for y in (x, memory)]
    into = sizes.split(*grads)
    kernels.backward(into, grad, x, memory, out, sums, queries_at, keys_at, sizes, causal, p_drop, seed)
    pairs = [(out, expected), (sums, lse), *((a, b.grad) for a, b in zip(grads, wide, strict=True) if b is not None)]
    return {"error": max(relative(a, b.detach()) for a, b in pairs)}


def relative(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def compiled() -> list[dict[str, object]]:
    """For each kernel in bfloat16, with heads of 64 and 128, its registers, spilled bytes and products on sm_90."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    ptxas = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    floats, offsets = ("scale", "slope", "gain"), ("QUERIES", "KEYS")
    found: list[dict[str, object]] = []
    cases = [(64, causal, p_drop) for causal in (False, True) for p_drop in (0.0, 0.1)] + [(128, True, 0.1)]
    for direction, name in enumerate(("_forward", "_backward")):
        for width, causal, p_drop in cases:
            sizes, kernel = Widths(8, width, width), getattr(kernels, name)
            constants = kernels.constants(sizes, causal, p_drop)
            kinds, attributes = {}, {}
            for i, argument in enumerate(kernel.arg_names):
                kinds[argument] = "*bf16" if argument.isupper() else "fp32" if argument in floats else "i32"
                if argument in (*offsets, "LSE", "SEED"):
                    kinds[argument] = {"LSE": "*fp32", "SEED": "*i64"}.get(argument, "*i32")
                if argument in constants:
                    kinds[argument] = "constexpr"
                elif argument.isupper() or argument.endswith("_stride"):
                    attributes[(i,)] = [["tt.divisibility", 16]]
            values = {(kernel.arg_names.index(key),): value for key, value in constants.items()}
            source = ASTSource(kernel, kinds, constexprs=values, attrs=attributes)
            made = triton.compile(
                source, target=GPUTarget("cuda", 90, 32), options={"num_warps": kernels.warps(sizes)[direction]}
            )
            with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
                file.write(made.asm["ptx"])
                file.flush()
                command = [ptxas, "-v", "-arch=sm_90a", "-o", "/dev/null", file.name]
                said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
            spilled = [int(number) for number in re.findall(r"(\d+) bytes spill", said)]
            registers = re.search(r"Used (\d+) registers", said)
            assert registers, said
            assert spilled, said
            found.append(
                {
                    "kernel": name,
                    "width": width,
                    "causal": causal,
                    "p_drop": p_drop,
                    "registers": int(registers[1]),
                    "spilled": sum(spilled),
                    "products": made.asm["ptx"].count("mma.sync") + made.asm["ptx"].count("wgmma.mma"),
                    "atomics": len(re.findall(r"\b(atom|red)\.", made.asm["ptx"])),
                }
            )
    return found


if __name__ == "__main__":
    print(json.dumps(interpreted() if sys.argv[1] == "interpret" else compiled()))
