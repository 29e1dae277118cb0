"""The page of a registered run names its version; text of the user stays text."""

from datetime import UTC, datetime

from tasks.stages.register import with_title

PAGE = "<html><title>demo: report of a run</title><h1>demo</h1><p>scores</p><h1>other</h1></html>"


def test_the_page_names_version_settings_date_and_commit() -> None:
    page = with_title(PAGE, "demo/3", r"p_drop 0.2 · <b>\1", datetime(2026, 11, 22, 21, 5, tzinfo=UTC), "a" * 40 + "+")
    assert "<title>demo/3: report</title>" in page
    about = rf"p_drop 0.2 · &lt;b&gt;\1 · registered 2026-11-22 21:05 UTC · commit {'a' * 10}+"
    assert f'<h1>demo/3</h1>\n<p class="lead">{about}</p><p>scores</p><h1>other</h1>' in page
