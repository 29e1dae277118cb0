"""A writing of the site that was interrupted can be repeated."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from made_up_roots import record

from flows.website import write
from flows.website.contents import Root, contents
from flows.website.write import write_site
from infra.site import Site


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    record(tmp_path / "root", "demo", datetime(2026, 11, 1, tzinfo=UTC), [{"stage": "clean"}])
    return Site(root=tmp_path / "root")


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let the next writing end after so many files; the first of them is one that a later site has not."""

    def cut(root: Root) -> Iterator[tuple[str, str | Path]]:
        for number, each in enumerate([("versions/gone/1.html", "old"), *contents(root)]):
            if number == after:
                raise Killed
            yield each

    monkeypatch.setattr(write, "contents", cut)


def files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("earlier", [False, True])
def test_an_interrupted_writing_can_be_repeated_and_leaves_nothing(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, earlier: bool
) -> None:
    write_site(site, tmp_path / "whole")
    out = tmp_path / "public"
    if earlier:
        write_site(site, out)
    for _ in range(2):
        with monkeypatch.context() as patch:
            interrupt(patch, after)
            with pytest.raises(Killed):
                write_site(site, out)
    write_site(site, out)
    assert files(out) == files(tmp_path / "whole")
