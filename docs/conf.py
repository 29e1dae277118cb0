"""The documentation as a site: `make docs` builds it into ``build/site`` with Sphinx, from the Markdown as it is.

The source folder is the project's own, so links between README.md, docs/ and benchmarks/ hold here as on a forge. The
pages load nothing from other hosts.
"""

from sphinx.application import Sphinx

CONTENTS = {
    "Tutorial": ["docs/tutorial", "docs/annotated/index"],
    "How to": [
        "docs/running",
        "docs/own-text",
        "docs/translate",
        "docs/mlflow",
        "docs/judging",
        "docs/synthetic",
        "docs/presets",
        "docs/deployment",
        "docs/gpu",
        "CONTRIBUTING",
    ],
    "Reference": ["docs/commands", "docs/run-fields", "docs/python", "docs/files", "docs/data", "CHANGELOG"],
    "Explanation": [
        "docs/design",
        "docs/paper",
        "docs/reproducibility",
        "docs/faults",
        "docs/walk",
        "SECURITY",
        "benchmarks/README",
        "benchmarks/notebook",
    ],
    "Troubleshooting": ["docs/troubleshooting"],
    "Glossary": ["docs/glossary"],
}
"""The navigation: pages by group, as paths from the project's folder."""

project = "Attention Is All You Need, reproduced"
html_title = project
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/annotated/*.md", "benchmarks/*.md"]
exclude_patterns = ["**/.*", "build", "dist", "tests"]
myst_heading_anchors = 4
highlight_language = "text"
# Examples of JSON contain "…" for what is left out.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_extra_path = ["site"]
html_static_path = ["static"]
html_css_files = ["annotated.css"]
html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False


def add_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """Add the navigation to the first page, which a forge shows without it."""
    if page == root_doc:
        for caption, pages in CONTENTS.items():
            entries = "\n".join(f"/{each}" for each in pages)
            source[0] += f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("source-read", add_contents)
