"""Takes screenshots of the site for the documentation and writes them to ``docs/screenshots/site-*.png``.

    python docs/pictures.py demo/1 demo/2      the model's page, these versions side by side, the limits of the runs

The root is that of ``REPRO_ROOT``, by default the nearest ``.repro``. Needs Chromium.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

PROJECT_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT_ROOT))

from playwright.sync_api import Browser, sync_playwright  # noqa: E402

from flows.website.write import write_site  # noqa: E402
from infra.site import Site  # noqa: E402

CHROMIUM = Path("/usr/bin/chromium")
SCREENSHOTS = PROJECT_ROOT / "docs" / "screenshots"
SIZE = {"width": 1100, "height": 1000}


def main(first: str, second: str) -> None:
    """Write the pictures; ``first`` and ``second`` are versions of one model, as in ``demo/1``."""
    model = first.partition("/")[0]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        site = Path(folder, "public")
        write_site(Site.named(), site)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = site / "models" / f"{model}.html"
        picture(browser, page.as_uri(), "site-model")
        both = quote(f"{first} {second}")
        picture(browser, f"{(site / 'compare.html').as_uri()}#{both}", "site-compare", color_scheme="dark")
        browser.close()


def picture(browser: Browser, address: str, name: str, **context: Any) -> None:
    """Write what a screen shows of a page from its anchor."""
    page = browser.new_page(**{"viewport": SIZE, **context})
    page.goto(address, wait_until="networkidle")
    file = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=file)
    page.close()
    print(file.relative_to(PROJECT_ROOT))


if __name__ == "__main__":
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("first", help="a version, as in demo/1")
    flags.add_argument("second", help="another version of that model")
    chosen = flags.parse_args()
    main(chosen.first, chosen.second)
