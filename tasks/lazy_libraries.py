"""numpy, polars and pyarrow, imported at their first use, so that a command that computes nothing starts fast."""

from typing import TYPE_CHECKING

from model.lazy_import import lazy_import

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:
    np = lazy_import("numpy")
    pl = lazy_import("polars")
    pa = lazy_import("pyarrow")
    pc = lazy_import("pyarrow.compute")
    pq = lazy_import("pyarrow.parquet")

__all__ = ["np", "pa", "pc", "pl", "pq"]
