"""Every page of the site works by keyboard alone: each control is reached, in order, and does what a click does."""

from pathlib import Path

from keyboard import walk
from playwright.sync_api import Page, expect


def test_everything_is_reached_in_order_with_a_visible_focus(page: Page, public: Path) -> None:
    for name in ("index.html", "models/ende.html", "versions/ende/2.html", "compare.html#ende/1%20ende/2"):
        page.goto(f"{public.as_uri()}/{name}")
        page.wait_for_load_state()
        if name.startswith("compare"):
            expect(page.locator("#scores tbody tr")).to_have_count(3)
        assert "Skip to the content" in walk(page)[0]


def test_what_is_folded_opens_and_is_reached(page: Page, public: Path) -> None:
    page.goto((public / "versions" / "ende" / "2.html").as_uri())
    closed = walk(page)
    for summary in page.locator("summary").all():
        summary.focus()
        page.keyboard.press("Enter")
        expect(summary.locator("xpath=..")).to_have_attribute("open", "")
    assert len(walk(page)) >= len(closed)
    summary.focus()
    page.keyboard.press("Enter")
    expect(summary.locator("xpath=..")).not_to_have_attribute("open", "")


def test_a_plot_is_read_zoomed_and_its_series_chosen(page: Page, public: Path) -> None:
    page.goto((public / "models" / "ende.html").as_uri())
    plot, scale = page.get_by_role("group", name="Scores over the versions"), "plots[0].plot.scales.x"
    plot.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    legend = page.locator(".u-legend .u-series:visible")
    expect(legend.first).to_contain_text("2")
    expect(legend.nth(1)).to_contain_text("32")
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert page.evaluate(f"{scale}.max - {scale}.min") == 0.5
    page.keyboard.press("ArrowRight")
    assert page.evaluate(f"{scale}.max") == 3, "the range follows the cursor"
    page.keyboard.press("-")
    assert page.evaluate(f"{scale}.max - {scale}.min") < 1.1
    page.keyboard.press("Escape")
    assert page.evaluate(f"[{scale}.min, {scale}.max]") == [1, 3]
    series = page.locator(".u-legend button").first
    series.focus()
    page.keyboard.press("Enter")
    expect(series).to_have_attribute("aria-pressed", "false")
    assert page.evaluate("plots[0].plot.series.map(each => each.show)")[1:4] == [False, False, False]
    expect(series).to_be_focused()
    page.keyboard.press("Space")
    expect(series).to_have_attribute("aria-pressed", "true")


def test_the_skip_link_keeps_what_is_compared(page: Page, public: Path) -> None:
    page.goto(f"{public.as_uri()}/compare.html#ende/1%20ende/2")
    page.get_by_role("link", name="Skip to the content").press("Enter")
    expect(page.locator("#a")).to_have_value("ende/1")
    assert "ende%2F1" in page.url
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "a"
