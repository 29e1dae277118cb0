"""The site in a real browser from ``file://``: plots, theme, sorting; light, dark, phone; no error, no other host."""

import re
from pathlib import Path
from statistics import fmean, stdev

import pytest
from playwright.sync_api import Page, expect

COMPARED = "compare.html#ende/1%20ende/2"


def test_a_measure_is_plotted_zoomed_and_saved(page: Page, public: Path) -> None:
    page.goto((public / "models" / "ende.html").as_uri())
    expect(page.locator(".plot canvas")).to_be_visible()
    legend = page.locator(".u-legend .u-series:visible")
    expect(legend).to_have_count(4)  # the version, val by each of two references, test
    page.locator(".measure").select_option("training hours")
    expect(legend).to_have_count(2)
    page.locator(".measure").select_option("bleu")
    box = page.locator(".u-over").bounding_box()
    assert box
    page.mouse.move(box["x"] + 5, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60, steps=5)
    page.mouse.up()
    scale = "plots[0].plot.scales.x.max"
    assert page.evaluate(scale) < 2.5
    page.get_by_role("button", name="Whole range").click()
    assert page.evaluate(scale) == 3
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the picture").click()
    assert saved.value.suggested_filename == "ende-bleu.png"
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")


def test_two_versions_are_compared_side_by_side(page: Page, public: Path) -> None:
    page.goto((public / "models" / "ende.html").as_uri())
    page.get_by_role("link", name="Compare two versions").click()
    expect(page.get_by_label("A", exact=True)).to_have_value("ende/2")
    expect(page.get_by_label("B", exact=True)).to_have_value("ende/3")
    expect(page.locator("#differs")).to_contain_text("No recorded setting")
    scores = page.locator("#scores tbody tr")
    expect(scores).to_contain_text(["other references", "50.50", "+1.00"])
    page.get_by_label("B", exact=True).fill("ende/1")
    page.get_by_label("B", exact=True).press("Enter")
    expect(page.locator("#fields tbody tr")).to_have_text(["model.p_drop0.30.1"])
    expect(scores).to_contain_text(["-1.00", "0.00", "-1.00"])
    expect(page.locator(".u-legend .u-series:visible")).to_have_text(
        [re.compile("update"), re.compile("ende/2"), re.compile("ende/1")]
    )
    assert page.evaluate("plot.data.measures[0].series.map(each => each.values)") == [[1.5, 0.75], [1.5, 0.75]]
    page.reload()
    expect(page.get_by_label("B", exact=True)).to_have_value("ende/1")
    page.get_by_label("A", exact=True).fill("ende/9")
    page.get_by_label("A", exact=True).press("Enter")
    expect(page.get_by_role("alert")).to_have_text("No version is called ende/9.")
    evil = page.evaluate("Object.keys(versionPages).find(label => label.includes('script'))")
    page.get_by_label("A", exact=True).fill(evil)
    page.get_by_label("A", exact=True).press("Enter")
    expect(page.locator("#fields thead th").nth(1)).to_have_text(evil)


@pytest.mark.parametrize("measure", ["dev_bleu", "dev_perplexity"])
def test_the_difference_at_equal_checks_has_a_moving_mean_and_its_error(page: Page, public: Path, measure: str) -> None:
    values = {"a": {1: 4.0, 2: 8.0, 4: 9.0, 5: 11.0, 6: 13.0, 7: 12.0}, "b": {2: 7.0, 3: 8.0, 4: 9.5, 5: 12.0, 6: 13.5}}
    a, b = values.values()
    updates = [update for update in a if update in b]
    differences = [100 * (b[n] / a[n] - 1) if measure == "dev_perplexity" else b[n] - a[n] for n in updates]
    near = [differences[max(0, place - 2) : place + 3] for place in range(len(updates))]
    page.goto(f"{public.as_uri()}/{COMPARED}")
    sides = [
        {
            "label": name,
            "curves": {"x": list(checks), "measures": [{"name": measure, "series": [{"values": [*checks.values()]}]}]},
        }
        for name, checks in values.items()
    ]
    drawn = page.evaluate("([a, b]) => joined(a, b)", sides)
    assert [each["name"].split(",")[0] for each in drawn["measures"]] == [measure] * 2
    mean, check = drawn["measures"][1]["series"]
    places = [drawn["x"].index(update) for update in updates]
    assert [check["values"][at] for at in places] == pytest.approx(differences)
    assert [mean["values"][at] for at in places] == pytest.approx([fmean(each) for each in near])
    halves = [(mean["high"][at] - mean["low"][at]) / 2 for at in places]
    assert halves == pytest.approx([2 * stdev(each) / len(each) ** 0.5 for each in near])
    assert sum(value is not None for value in check["values"]) == len(places) == 4


def test_versions_are_sorted_by_keyboard(page: Page, public: Path) -> None:
    page.goto((public / "models" / "ende.html").as_uri())
    rows = page.locator("#versions ~ .scroll tbody tr th")
    expect(rows).to_have_text(["3", "2", "1"])
    page.get_by_role("button", name="BLEU, dev set").press("Enter")
    expect(rows).to_have_text(["1", "2", "3"])
    expect(page.get_by_role("columnheader", name="BLEU, dev set")).to_have_attribute("aria-sort", "ascending")


@pytest.mark.parametrize("page", ["phone"], indirect=True)
def test_a_phone_shows_scores_without_scrolling(page: Page, public: Path) -> None:
    rows = {
        "index.html": ("ende", ["32.00", "27.00"]),
        "models/ende.html": ("2", ["32.00", "27.00"]),
        COMPARED: ("val", ["31.00", "32.00", "+1.00"]),
    }
    for name, (row, texts) in rows.items():
        page.goto(f"{public.as_uri()}/{name}")
        found = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=re.compile(f"{row}$"))).first
        for text in texts:
            box = found.get_by_role("cell").filter(has_text=text).first.bounding_box()
            assert box
            assert box["x"] + box["width"] <= page.viewport_size["width"], name  # type: ignore[index]


@pytest.mark.parametrize("page", ["light", "dark", "phone"], indirect=True)
def test_every_kind_of_page_is_accessible_and_fits_the_screen(page: Page, public: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    evil = next(path.parent.name for path in public.glob("versions/*/1-report.html"))
    for name in ("index.html", "models/ende.html", f"versions/{evil}/1.html", "versions/ende/2.html", COMPARED):
        page.goto(f"{public.as_uri()}/{name}")
        page.wait_for_load_state()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name
        found = Axe().run(page, options={"preload": False})
        assert found.violations_count == 0, found.generate_report()
