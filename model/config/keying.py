"""Declares which fields of a configuration enter a stage's key, and checks the values of fields.

All fields of a configuration dataclass enter the key, with two exceptions: ``unkeyed_default`` declares a field that
was added after artifacts existed, ``unkeyed`` declares a field that locates something instead of identifying it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin

UNKEYED_DEFAULT = "unkeyed default"
UNKEYED = "unkeyed"


def unkeyed_default(default: Any) -> Any:
    """Declare a field that is not in the key while its value is ``default``, so that older artifacts stay valid."""
    return field(default=default, metadata={UNKEYED_DEFAULT: True})


def unkeyed(default: Any) -> Any:
    """Declare a field that never enters the key, such as an address: the checksum of its content enters the key."""
    return field(default=default, metadata={UNKEYED: True})


def require(holds: bool, name: str, value: object, allowed: str) -> None:
    """Raise ValueError naming the field, its value and what is allowed, unless ``holds``."""
    if not holds:
        raise ValueError(f"{name} is {value!r}, allowed is {allowed}")


def require_choices(config: Any, name: str) -> None:
    """Raise ValueError if a field of a ``Literal`` type has a value that the type does not list."""
    for each in fields(config):
        choices = get_args(each.type) if get_origin(each.type) is Literal else ()
        value = getattr(config, each.name)
        words = " or ".join(choices) if len(choices) == 2 else ", ".join(choices)
        require(not choices or value in choices, f"{name}.{each.name}", value, words)


def require_name(name: str, field_name: str, also: str = "") -> None:
    """Raise ValueError unless ``name`` can name files, folders and an MLflow model.

    Allowed are letters, digits, underscores and hyphens; after the first character also those in ``also``.
    """
    fits = re.fullmatch(rf"\w[\w{re.escape(also)}-]{{0,99}}", name) is not None
    further = "".join(f", {character!r}" for character in also)
    require(fits, field_name, name, f"1 to 100 letters, digits, '_', '-'{further}, the first a letter or digit")


LARGEST = 2**53
"""The largest whole number in a configuration: JSON readers may round larger ones."""


def require_finite(value: Any, path: str) -> None:
    """Raise ValueError for a number in ``value`` that is infinite, NaN or, if whole, beyond ``LARGEST``.

    ``value`` is a configuration; the check includes configurations in its fields. ``path`` is its name: ``training``.
    """
    if is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            require_finite(getattr(value, each.name), f"{path}.{each.name}".removeprefix("."))
    elif isinstance(value, Mapping):
        for name, each in value.items():
            require_finite(each, f"{path}.{name}")
    elif isinstance(value, tuple | list):
        for each in value:
            name = f".{type(each).__name__}" if is_dataclass(each) else ""
            require_finite(each, f"{path}{name}")
    elif isinstance(value, float):
        require(math.isfinite(value), path, value, "a finite number")
    elif isinstance(value, int):
        require(abs(value) <= LARGEST, path, value, f"a whole number of at most {LARGEST:,}")
