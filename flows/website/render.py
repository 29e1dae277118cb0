"""Renders the templates of the site. Escapes everything, since names, tags and sentences are not trusted."""

from datetime import datetime
from pathlib import Path

from flows.website.registry import Score
from infra.tracking.provenance import short_commit
from tasks.evaluation import html

FOLDER = Path(__file__).parent


def render(template: str, page: str, **values: object) -> str:
    """Render the page for the path ``page`` below the site's folder; its links are relative to that path."""
    environment = html.environment(FOLDER / "templates")
    environment.filters.update(
        moment=moment, score=score, score_text=html.score_text, interval=interval, short_commit=short_commit
    )
    up = "../" * page.count("/")
    return environment.get_template(template).render(values, up=up, page=page)


def moment(value: datetime) -> str:
    """Format a time in UTC, the same for every reader: ``2026-11-22 21:22``."""
    return f"{value:%Y-%m-%d %H:%M}"


def score(value: Score | None) -> str:
    return "" if value is None else f"{value.value:.2f}"


def interval(value: Score | None) -> str:
    """Format an interval as ``89.83–92.64``; "" if none was computed."""
    return "" if value is None or value.low is None or value.high is None else f"{value.low:.2f}–{value.high:.2f}"
