"""Sentences about unknown names, with the known ones that are near."""

import difflib
from collections.abc import Iterable, Sequence


def unknown_name(name: str, known: Sequence[str], whole: str, what: str = "field") -> str:
    """The sentence about an unknown field or rule ``name`` of ``whole``, with its neighbours among ``known``."""
    return f"unknown {what} {name!r} in {whole}{did_you_mean(name, known)} (known: {', '.join(known)})"


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """``; did you mean demo?``, or "" if none of ``known`` is as near as ``cutoff`` (1: equal)."""
    words = {each.removesuffix(".toml"): each for each in known}  # a run's file is also called without its ending
    near = difflib.get_close_matches(name, words, n=3, cutoff=cutoff)
    return f"; did you mean {' or '.join(words[each] for each in near)}?" if near else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """The one of ``known`` that a slip, such as two letters exchanged, makes ``name``; "" for none."""
    return "".join(difflib.get_close_matches(name, known, n=1, cutoff=0.75))
