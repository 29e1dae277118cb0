"""What a registered version says of itself, as values."""

import json

from infra.tracking.registry import Version
from model.config import Decoding, from_json

MARK = "decoding."


def decoding_of(version: Version) -> Decoding:
    """How the version's dev set was decoded; the paper's way (§6.1) where it does not say."""
    said = {name.removeprefix(MARK): json.loads(v) for name, v in version.tags.items() if name.startswith(MARK)}
    return from_json(Decoding, said)
