"""Configuration of model, training, averaging and decoding as frozen dataclasses, without torch; symbols as in Table 3.

A job receives them as JSON and rebuilds them with ``from_json``. This package imports no other sub-package.
"""

from dataclasses import fields
from typing import Any, TypeVar

from .decoding import Averaging, Decoding
from .keying import require
from .model import Model, SourceEnds, count_parameters, supports_varlen_attention
from .numerics import STRICT_ENVIRONMENT, Numerics
from .training import TargetEnds, Training, check_compatible, check_whole_updates

__all__ = [
    "STRICT_ENVIRONMENT",
    "Averaging",
    "Decoding",
    "Model",
    "Numerics",
    "SourceEnds",
    "TargetEnds",
    "Training",
    "check_compatible",
    "check_whole_updates",
    "count_parameters",
    "from_json",
    "supports_varlen_attention",
]

Config = TypeVar("Config")


def from_json(kind: type[Config], values: dict[str, Any]) -> Config:
    """Rebuild a configuration from JSON, perhaps with its ``class``. Raises ValueError that lists the known fields."""
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    values = {name: value for name, value in values.items() if name != "class"}
    for name in values:
        require(name in known, f"{kind.__name__} field", name, ", ".join(known))
    return kind(**values)
