"""Imports large libraries at their first use, so that a command without computations starts fast.

if TYPE_CHECKING:
    import polars as pl
else:
    pl = LazyModule("polars")
"""

from importlib import import_module
from typing import Any


class LazyModule:
    """A placeholder for a module: the first access to an attribute imports the module, or raises ImportError."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self.__name__), attribute)
        # Stored here, so that the next access is as fast as on the module.
        setattr(self, attribute, value)
        return value
