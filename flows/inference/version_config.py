"""Read the decoding configuration of a registered version from its tags."""

import json

from infra.tracking.model_version import Version
from model.config import Decoding, from_json

DECODING_TAG_PREFIX = "decoding."


def decoding_config(version: Version) -> Decoding:
    """The configuration that decoded the version's dev set; the paper's defaults (§6.1) for missing tags."""
    fields = {
        tag.removeprefix(DECODING_TAG_PREFIX): json.loads(value)
        for tag, value in version.tags.items()
        if tag.startswith(DECODING_TAG_PREFIX)
    }
    return from_json(Decoding, fields)
