"""Estimates what CUDA graphs gain in a step of beam search: ``python benchmarks/step_estimate.py``; no GPU.

The host starts a step's operations one by one while the device computes; a step takes the longer of both. A graph
(``model.decoding.static_decoder``) starts most of them at once, but reads and reorders caches of one size whole.
Operations are counted on a CPU, bytes and products by formula for the base model in bfloat16; milliseconds are these
over assumed rates.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.comparison import SIZES
from model.config import Decoding
from model.decoding import static_decoder
from model.decoding.beam_search import SearchConstraints, beam_search
from model.decoding.cached_decoder import decoder_starter
from model.decoding.static_decoder import StaticSteps
from model.decoding.translator import SPECIAL_IDS
from model.network.transformer import Transformer

PRODUCTS, MEMORY, START = 570e12, 3.7e12, 5e-6
"""Assumed operations and bytes a second, as in ``estimate.py``, and seconds in which the host starts an operation."""
BEAM, SOURCE, POSITION, BUCKET = 4, 28, 16, 32
"""Hypotheses, pieces of a source, positions so far, and those of the cache of one size."""
VIEWS = {"alias", "as_strided", "detach", "empty", "expand", "permute", "select", "slice", "split", "split_with_sizes"}
VIEWS |= {"squeeze", "t", "transpose", "unbind", "unsqueeze", "view", "_unsafe_view"}
"""Operations that start no kernel."""


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations that start a kernel."""

    operations = 0

    def __torch_dispatch__(self, function: Any, _: Any, arguments: Sequence[Any] = (), named: Any = None) -> Any:
        with self:
            if (found := function.decompose(*arguments, **(named or {}))) is not NotImplemented:
                return found
        self.operations += function.name().removeprefix("aten::").partition(".")[0] not in VIEWS
        return function(*arguments, **(named or {}))


def operations(graphs: bool, steps: int = 9) -> float:
    """Operations that the host starts in a step of a search: the mean over those after the first; a graph is one."""
    model = Transformer(replace(SIZES["base"][0], d_model=16, d_ff=32, heads=2, d_k=8, d_v=8), 64, 64).eval()
    source_BS, found = torch.randint(4, 64, (8, 9)), list[int]()
    start = decoder_starter(model)

    def recorded(work: Callable[[], None], _: torch.device) -> Callable[[], None]:
        def replay() -> None:
            before = counted.operations
            work()
            counted.operations = before + 1

        return replay

    with patch.object(static_decoder, "recorded", recorded):
        starter = StaticSteps(start) if graphs else start
        for length in (2, 1, 1 + steps):  # the first makes the step
            constraints = [SearchConstraints(length, min_length=length)] * len(source_BS)
            with Counted() as counted:  # type: ignore[no-untyped-call]
                beam_search(starter(source_BS), constraints, Decoding(beam=BEAM), SPECIAL_IDS, source_BS.device)
            found.append(counted.operations)
    return (found[2] - found[1]) / steps


def device_seconds(sentences: int, graph: bool) -> float:
    """Of a step: its products; the weights, logits and caches that it reads and writes."""
    config, vocabulary = SIZES["base"]
    d, rows, joined = config.d_model, BEAM * sentences, config.heads * (config.d_k + config.d_v)
    positions, copies = (BUCKET, 2) if graph else (POSITION, 1)
    weights = config.layers * (d * (3 * joined // 2 + 2 * joined // 2) + joined // 2 * d + 2 * d * config.d_ff)
    weights += vocabulary * d
    cached = 2 * config.layers * joined
    reordered, logits = 2 * copies * positions * rows * cached, 4 * 4 * rows * vocabulary
    moved = 2 * weights + positions * rows * cached + SOURCE * sentences * cached + reordered + logits
    return 2 * rows * weights / PRODUCTS + moved / MEMORY


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    counts = [operations(graph) for graph in (False, True)]
    plain, replayed = (START * count for count in counts)
    print(
        f"The host starts {counts[0]:.0f} operations a step in {1e3 * plain:.2f} ms, with a graph {counts[1]:.0f} in "
        f"{1e3 * replayed:.2f} ms.\n"
    )
    print("| live sentences | device, caches that grow | device, a graph's caches | step | step with a graph |")
    print("|---:|---:|---:|---:|---:|")
    for sentences in (2_340, 512, 256, 128, 64, 16, 1):
        growing, static = (device_seconds(sentences, graph) for graph in (False, True))
        times = (growing, static, max(plain, growing), max(replayed, static))
        print(f"| {sentences:,} | {' | '.join(f'{1e3 * seconds:.2f} ms' for seconds in times)} |")


if __name__ == "__main__":
    main()
