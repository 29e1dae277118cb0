"""How the fields of a configuration enter a stage's key, and the checks they share.

All fields of a configuration dataclass enter the key, except those declared here: ``unkeyed_default`` for a field
that was added after artifacts existed, ``unkeyed`` for one that locates something instead of identifying it.
"""

from dataclasses import field
from typing import Any

UNKEYED_DEFAULT = "late"
UNKEYED = "unkeyed"


def unkeyed_default(default: Any) -> Any:
    """A field that stays out of the key while it holds ``default``, so that older artifacts stay valid."""
    return field(default=default, metadata={UNKEYED_DEFAULT: True})


def unkeyed(default: Any) -> Any:
    """A field that never enters the key, such as an address whose content is keyed by checksum."""
    return field(default=default, metadata={UNKEYED: True})


def require(holds: bool, name: str, value: object, allowed: str) -> None:
    """Raise ValueError naming the field, its value and what is allowed, unless ``holds``."""
    if not holds:
        raise ValueError(f"{name} is {value!r}, allowed is {allowed}")
