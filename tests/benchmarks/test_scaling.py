"""The benchmark of a growing root at a small size: made-up runs are whole, and the report is complete."""

from pathlib import Path

from benchmarks.large_root import STAGES, add_runs
from benchmarks.scaling import measure, table
from flows.website.write import write_site
from infra.site import Site, open_store


def test_commands_are_measured_on_a_growing_root() -> None:
    report = measure(["--runs", "2", "6", "--repeat", "1", "--commands", "history", "gc"])
    assert [*report["found"]] == [2, 6]
    assert all(each["cpu"] > 0 and each["mib"] > 10 for found in report["found"].values() for each in found.values())
    assert "MiB" in table(report)


def test_made_up_runs_have_artifacts_and_pages(tmp_path: Path) -> None:
    root = tmp_path / "root"
    add_runs(root, 0, 4)
    add_runs(root, 4, 6)
    site = Site(root=root)
    assert sum(1 for _ in open_store(site).list()) == 6 * len(STAGES)
    _, versions, files = write_site(site, tmp_path / "public")
    assert versions == 6
    # Each version has a page, a card and data, beside the pages of the whole site.
    assert files > 6 * 3 + 4
