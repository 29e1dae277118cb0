"""Durations as text, in the terminal, in reports and on the site."""


def duration(seconds: float) -> str:
    """``48 s``, ``12 min 05 s``, ``3 h 20 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
