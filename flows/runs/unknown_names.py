"""Sentences about unknown names, with the known ones that are near."""

import difflib
from collections.abc import Iterable, Sequence


def unknown_name(name: str, known: Sequence[str], whole: str, what: str = "field") -> str:
    """The sentence about an unknown field or rule ``name`` of ``whole``, with its neighbours among ``known``."""
    return f"unknown {what} {name!r} in {whole}{did_you_mean(name, known)} (known: {', '.join(known)})"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean demo?``, or "" if none of ``known`` is near."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""
