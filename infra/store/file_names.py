"""The one way in which a name that people chose, of a run or a model, becomes the name of a file or a folder."""

import hashlib
import re

HARMLESS = re.compile(r"[A-Za-z0-9_-]{1,100}")
LONGEST_READABLE = 80


def file_name(name: str) -> str:
    """The name itself where any file system takes it, else its readable part with a digest of the whole.

    So no two names share a file, as ``Größe`` and ``Grüße`` would without the digest.
    """
    if HARMLESS.fullmatch(name):
        return name
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:LONGEST_READABLE]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
