"""The benchmark of the site at a small size: its root has everything, and the report is complete."""

from benchmarks.site import STAGES, measure, table


def test_a_site_of_made_up_versions_is_measured() -> None:
    report = measure(["--versions", "6"])
    assert report["artifacts"] == 6 * len(STAGES)
    assert report["seconds"] > 0
    # Each version has a page, a card and data, beside the pages of the whole site.
    assert report["files"] > 6 * 3 + 4
    assert 0 < report["largest_page"]["megabytes"] < 1
    assert report["largest_page"]["name"] in table(report)
