"""Recording of a GPU's work as a CUDA graph, which one call starts again."""

from collections.abc import Callable

import torch

Work = Callable[[], None]


def record_cuda_graph(work: Work) -> Work:
    """Record the kernels that ``work`` starts, without running them; the result runs them again."""
    graph = torch.cuda.CUDAGraph()
    # Meanwhile another thread pins memory for the next batches.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    replay: Work = graph.replay
    return replay
