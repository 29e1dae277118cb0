"""Names the version on the page of its run. The artifact's own page carries no date, so that it stays the same."""

import re
from datetime import datetime
from html import escape

from infra.tracking.provenance import short_commit


def with_title(page: str, version: str, settings: str, when: datetime, commit: str) -> str:
    """The page with the version in its title and heading, and settings, date and commit below the heading."""
    made = [
        settings or "no overrides",
        f"registered {when:%Y-%m-%d %H:%M} UTC",
        f"commit {short_commit(commit) or 'unknown'}",
    ]
    page = re.sub("<title>.*?</title>", lambda _: f"<title>{escape(version)}: report</title>", page, count=1)
    named = f'<h1>{escape(version)}</h1>\n<p class="lead">{escape(" · ".join(made))}</p>'
    return re.sub("<h1>.*?</h1>", lambda _: named, page, count=1)
