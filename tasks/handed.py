"""A stage that another worker is to make: what it is told. How it is reached, ``flows.handing_over`` knows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tasks.stage import Call


@dataclass(frozen=True)
class Handed:
    """A stage for a worker elsewhere, below MLflow's run ``record``; a forced one with the ``attempt`` to belong to."""

    call: Call
    attempt: str
    record: str


HandOver = Callable[[Handed], None]
"""Returns when the artifact is in the store, or raises the Fault that it came to there."""
NOWHERE: Mapping[str, HandOver] = MappingProxyType({})
"""By what a stage needs; what is not named is made here."""
