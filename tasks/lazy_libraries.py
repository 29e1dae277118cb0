"""numpy, polars and pyarrow, imported at their first use, so that a command that computes nothing starts fast."""

from typing import TYPE_CHECKING, Any

from model.lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")
    pl = LazyModule("polars")
    pa = LazyModule("pyarrow")
    pc = LazyModule("pyarrow.compute")
    pq = LazyModule("pyarrow.parquet")
    NDArray = Any  # for annotations alone

__all__ = ["NDArray", "np", "pa", "pc", "pl", "pq"]
