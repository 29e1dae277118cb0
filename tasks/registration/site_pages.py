"""Where ``repro site`` writes the page of a version, for the site itself and for links to it."""

import hashlib
import re


def version_page(name: str, number: int) -> str:
    """The path of the page below the site's folder."""
    return f"versions/{slug(name)}/{number}.html"


def slug(name: str) -> str:
    """A name as the name of a file: unchanged if it is harmless, else with a digest."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:80]
    return name if name == plain else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
