"""The mixture of corpus parts that a training reads: the value of ``Training.mixture``.

europarl=3,news-commentary=1         three pairs of europarl for each pair of news-commentary; pairs are repeated or
                                     left out to reach these shares
temperature=5                        the share of a part is proportional to (number of its pairs) ** (1/5)
"""

import math
from dataclasses import dataclass

from .keying import require

ALLOWED = "part=share,part=share, each part once, with a share above 0, or temperature=T of at least 1"


@dataclass(frozen=True)
class Mixture:
    """The relative share of each part, or a temperature for all parts."""

    shares: tuple[tuple[str, float], ...] = ()
    temperature: float = 0.0


def parse_mixture(text: str) -> Mixture | None:
    """Parse ``text``; return None if it is empty. Raises ValueError naming training.mixture."""
    if not text:
        return None
    try:
        pairs = [part.partition("=") for part in text.split(",")]
        shares = tuple((name.strip(), float(share)) for name, _, share in pairs)
    except ValueError:
        raise ValueError(f"training.mixture is {text!r}, allowed is {ALLOWED}") from None
    names = [name for name, _ in shares]
    valid = len(set(names)) == len(names) and all(name and 0 < share < math.inf for name, share in shares)
    require(valid, "training.mixture", text, ALLOWED)
    if names != ["temperature"]:
        return Mixture(shares)
    require(shares[0][1] >= 1, "training.mixture", text, ALLOWED)
    return Mixture(temperature=shares[0][1])
