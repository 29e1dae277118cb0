"""Cleanings by name: what other people's preparations do, as values.

``paper`` is what the paper says of its data, which is nothing but that sentence pairs were there (§5.1). ``tutorial``
is what tutorials on the Transformer usually do; it counts pieces, and these are known when text is encoded, so its
limits are the sharding's.
"""

from dataclasses import dataclass, replace

from tasks.cleaning.filters import Empty, Filters, Normalise
from tasks.stages.shard import Sharding


@dataclass(frozen=True)
class Profile:
    """Which text is learnt from: rules over text, and limits in pieces."""

    filters: Filters
    sharding: Sharding

    def limits(self, sharding: Sharding) -> Sharding:
        """``sharding`` with this profile's limits in pieces; its files are as large as before."""
        return replace(self.sharding, pairs_per_shard=sharding.pairs_per_shard)


AS_READ = Normalise(nfc=False, control=False, white_space=False)

PROFILES = {
    "paper": Profile(Filters((Empty(),), AS_READ), Sharding(min_pieces=1, max_pieces=256)),
    "tutorial": Profile(Filters((Empty(),), AS_READ), Sharding(min_pieces=3, max_pieces=150, max_ratio=2.0)),
}
"""``paper``: empty lines leave, nothing else: no repeats, no lines of the sets; 256 pieces a side is what the longest
sentence may hold that still fits the model, not a rule of the paper's. ``tutorial``: 3 to 150 pieces a side, the longer
side at most twice the shorter."""
