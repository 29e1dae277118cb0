"""Formats durations for the terminal, reports and the site, and parses durations that a user types."""

import re

UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0}
"""Seconds of a week, a day, an hour, a minute."""
TYPED = re.compile("".join(rf"(?:(\d{{1,5}}(?:\.\d+)?){unit})?" for unit in UNITS))


def seconds_of(text: str) -> float | None:
    """The seconds of ``30m``, ``1h30m``, ``6h``, ``2d`` or ``4w``; None for other text."""
    found = TYPED.fullmatch(text)
    if not found or not text:
        return None
    return sum(float(number or 0) * unit for number, unit in zip(found.groups(), UNITS.values(), strict=True))


def duration(seconds: float) -> str:
    """``48 s``, ``12 min 05 s``, ``3 h 20 min``; from 1,000 hours on ``57 days`` or ``15 years``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole >= 3_600_000:
        days = whole / 86_400
        return f"{days:.0f} days" if days < 731 else f"{days / 365.25:,.0f} years"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
