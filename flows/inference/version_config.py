"""What a registered version says of itself, as values."""

import json

from infra.tracking.model_version import Version
from model.config import Decoding, from_json

DECODING_TAG_PREFIX = "decoding."


def decoding_config(version: Version) -> Decoding:
    """How the version's dev set was decoded; the paper's way (§6.1) where it does not say."""
    said = {
        name.removeprefix(DECODING_TAG_PREFIX): json.loads(v)
        for name, v in version.tags.items()
        if name.startswith(DECODING_TAG_PREFIX)
    }
    return from_json(Decoding, said)
