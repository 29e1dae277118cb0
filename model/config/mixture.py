"""The mixture of corpus parts that a training reads, in stages: the value of ``Training.mixture``.

europarl=3,news-commentary=1         three pairs of europarl for each of the other, by repeating or leaving out pairs
temperature=5                        shares proportional to the size of a part to the power of 1/5
europarl=1; 8000: news-commentary=1  a curriculum: europarl alone, then, after 8,000 updates, news-commentary alone
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from .keying import require

ALLOWED = (
    "part=share,part=share or temperature=T of at least 1, for several stages 'part=share; UPDATE: part=share', "
    "with rising updates"
)


@dataclass(frozen=True)
class MixtureStage:
    """The mixture after ``begin`` updates: relative shares of pairs by part, or a temperature over all parts."""

    begin: int
    shares: tuple[tuple[str, float], ...] = ()
    temperature: float = 0.0


def parse_mixture(text: str) -> tuple[MixtureStage, ...]:
    """The stages of ``text``, the first at update 0; none if it is empty. Raises ValueError naming training.mixture."""
    if not text:
        return ()
    stages = tuple(_stage(part, text) for part in text.split(";"))
    begins = [stage.begin for stage in stages]
    rising = begins[0] == 0 and all(a < b for a, b in pairwise(begins))
    require(rising, "training.mixture", text, ALLOWED)
    return stages


def _stage(text: str, whole: str) -> MixtureStage:
    first, colon, body = text.rpartition(":")
    try:
        begin = int(first.replace("_", "")) if colon else 0
        pairs = [part.partition("=") for part in body.split(",")]
        shares = tuple((name.strip(), float(share)) for name, _, share in pairs)
    except ValueError:
        raise ValueError(f"training.mixture is {whole!r}, allowed is {ALLOWED}") from None
    names = [name for name, _ in shares]
    valid = len(set(names)) == len(names) and all(name and 0 < share < math.inf for name, share in shares)
    require(valid and begin >= 0, "training.mixture", whole, f"{ALLOWED}; each part once, with a share above 0")
    if names != ["temperature"]:
        return MixtureStage(begin, shares)
    require(shares[0][1] >= 1, "training.mixture", whole, ALLOWED)
    return MixtureStage(begin, temperature=shares[0][1])
