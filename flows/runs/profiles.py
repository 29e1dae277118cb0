"""Cleaning profiles by name: ``--set profile=tutorial``.

``paper`` follows the paper, which names no cleaning (§5.1). ``tutorial`` follows common tutorials on the Transformer;
they limit pieces, so these limits are part of ``Sharding``.
"""

from dataclasses import dataclass, replace

from model.config.normalise import Normalise
from tasks.cleaning.filters import Empty, Filters
from tasks.stages.shard import Sharding


@dataclass(frozen=True)
class Profile:
    """Which pairs are trained on: filters of text, and limits in pieces."""

    filters: Filters
    sharding: Sharding

    def limits(self, sharding: Sharding) -> Sharding:
        """``sharding`` with this profile's limits in pieces."""
        theirs = self.sharding
        return replace(sharding, min_pieces=theirs.min_pieces, max_pieces=theirs.max_pieces, max_ratio=theirs.max_ratio)


AS_READ = Normalise(nfc=False, control=False, white_space=False)

PROFILES = {
    "paper": Profile(Filters((Empty(),), AS_READ), Sharding(min_pieces=1, max_pieces=256)),
    "tutorial": Profile(Filters((Empty(),), AS_READ), Sharding(min_pieces=3, max_pieces=150, max_ratio=2.0)),
}
"""``paper`` removes empty lines only; repeated lines and lines of the sets stay. Its limit of 256 pieces per side is
what fits the model, not a rule of the paper. ``tutorial``: 3 to 150 pieces per side, ratio at most 2."""
