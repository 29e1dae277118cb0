"""The embedded corpus: 20,000 pairs of English-German text, and a dev and a test set of 500 pairs each.

A small grammar generated the sentences once (``tasks/demo/grammar.py`` up to release 0.2.0 of this project). The
training text holds defects of every kind that the filters detect (their numbers: ``tests/tasks/stages/test_clean.py``).
Dev and test combine known words in ways that the training text never does.
"""

import lzma
from pathlib import Path

FOLDER = Path(__file__).parent


def content(path: str) -> bytes:
    """The bytes of one file, such as ``demo/train.en``. Raises FileNotFoundError for another path."""
    return lzma.decompress((FOLDER / f"{path.removeprefix('demo/')}.xz").read_bytes())
