"""numpy, polars and pyarrow, imported at their first use, so that a command that computes nothing starts fast."""

from typing import TYPE_CHECKING, Any

from model.lazy_import import lazy_import

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from numpy.typing import NDArray
else:
    np = lazy_import("numpy")
    pl = lazy_import("polars")
    pa = lazy_import("pyarrow")
    pc = lazy_import("pyarrow.compute")
    pq = lazy_import("pyarrow.parquet")
    NDArray = Any  # for annotations alone

__all__ = ["NDArray", "np", "pa", "pc", "pl", "pq"]
