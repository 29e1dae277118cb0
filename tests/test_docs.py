"""The documentation: the site that Sphinx builds, and what the pages say of the program."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "benchmarks/notebook.md",
    "docs/annotated/index.md",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build as `make docs` does: warnings, also of links that lead nowhere, are errors."""
    out = tmp_path_factory.mktemp("docs") / "site"
    options = ["-W", "--keep-going", "-n", "-q", "-c", f"{TOP / 'docs'}", "-d", f"{out}-doctrees"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, f"{TOP}", f"{out}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_in_the_site_and_in_its_navigation(site: Path) -> None:
    pages = {f"{path.relative_to(TOP)}" for path in TOP.glob("docs/*.md")} | {
        name for name in PAGES if (TOP / name).is_file()
    }
    assert {f"{path.relative_to(site).with_suffix('.md')}" for path in site.rglob("*.html")} >= pages
    first = (site / "README.html").read_text()
    linked = set(re.findall(r'<li class="toctree-l1[^"]*"><a [^>]*href="([^"#]+)\.html"', first))
    assert {f"{name}.md" for name in linked} == pages - {"README.md"}
    assert 'url=README.html"' in (site / "index.html").read_text()


def test_the_pages_load_nothing_from_other_hosts(site: Path) -> None:
    away = re.compile(r"""(?:src=|@import |url\()["']?(?:https?:)?//|<link [^>]*href=["'](?:https?:)?//""")
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert len(files) > 20
    assert not [path for path in files if away.search(path.read_text())]


def test_the_messages_of_the_troubleshooting_page_are_those_of_the_program() -> None:
    sources = [path for package in ("flows", "tasks", "model", "infra") for path in (TOP / package).rglob("*.py")]
    # A message may be several strings, one after another.
    text = "\n".join(re.sub(r'"\s+f?"', "", path.read_text()) for path in sources)
    page = (TOP / "docs" / "troubleshooting.md").read_text()
    cells = re.findall(r"^\| (.*?) \|", page, re.MULTILINE)
    spans = [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]
    parts = {part.strip(" .,;") for span in spans for part in span.split("…")}
    assert len(parts) > 30
    assert not {part for part in parts if part not in text}


@pytest.mark.parametrize("page", ["design.md", "paper.md", "annotated/index.md"])
def test_the_files_that_a_page_names_exist(page: str) -> None:
    text = (TOP / "docs" / page).read_text()
    named = set(re.findall(r"\b(?:tests/)?(?:flows|tasks|model|infra)/[\w/]*\w\.py\b", text))
    assert len(named) > 10
    assert not [name for name in named if not (TOP / name).is_file()]
    places = re.findall(r"`(?:\w+\.)?(\w+)` in `([\w/]+\.py)`", text)
    assert not [name for name, file in places if not re.search(rf"(def|class) {name}\b", (TOP / file).read_text())]
