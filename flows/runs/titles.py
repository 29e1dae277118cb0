"""The name by which people tell runs apart in a list: ``multi30k-ende · p_drop 0.2 · seed 3``."""

from collections.abc import Sequence

SEPARATOR = " · "


def settings_text(overrides: Sequence[str]) -> str:
    """The overrides in words, each with the last part of its path: ``p_drop 0.2 · Length.max 70``; "" for none."""
    return SEPARATOR.join(_setting(*each.partition("=")[::2]) for each in overrides)


def run_title(name: str, overrides: Sequence[str]) -> str:
    """The run's name and its settings."""
    return SEPARATOR.join(filter(None, (name, settings_text(overrides))))


def _setting(path: str, value: str) -> str:
    *parents, last = path.split(".")
    # A filter has a name of its own: ``filters.rules.Length.max``.
    named = f"{parents[-1]}.{last}" if parents and parents[-1][:1].isupper() else last
    return f"{named} {value}"
