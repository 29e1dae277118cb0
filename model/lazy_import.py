"""Imports large libraries at their first use, so that a command that computes nothing starts fast.

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazy_import("polars")
"""

from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for a module: the first access to an attribute imports it."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self.__name__), attribute)
        # Kept here, so that the next access costs what it costs on the module.
        setattr(self, attribute, value)
        return value


def lazy_import(name: str) -> Any:
    """The module ``name``, imported at its first use; raises ImportError there if it is missing."""
    return LazyModule(name)
