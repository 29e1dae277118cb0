"""Writes error messages about unknown names, with similar known names."""

import difflib
from collections.abc import Iterable, Sequence


def unknown_name(name: str, known: Sequence[str], whole: str, what: str = "field") -> str:
    """Write the message about an unknown field or rule ``name`` of ``whole``, with similar names from ``known``."""
    return f"unknown {what} {name!r} in {whole}{did_you_mean(name, known)} (known: {', '.join(known)})"


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Write ``; did you mean demo?``, or "" if no ``known`` name has a similarity of ``cutoff`` (1: equal)."""
    words = {each.removesuffix(".toml"): each for each in known}  # users also name a run's file without its suffix
    near = difflib.get_close_matches(name, words, n=3, cutoff=cutoff)
    return f"; did you mean {' or '.join(words[each] for each in near)}?" if near else ""
