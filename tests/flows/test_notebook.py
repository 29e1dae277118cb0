"""The notebook runs on a finished root, in a program and in a real browser, and uses ``flows.api`` alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs_script import DOCS, docs_script
from playwright.sync_api import Browser, expect
from services import wait_for

from infra.processes.children import die_with_parent, terminate_group
from infra.servers.loopback import free_ports, healthy

NOTEBOOK = "notebooks/explore.py"
MILLISECONDS = 240_000
PARTS = ("Registered versions", "Curves of the trainings", "Sentences that differ", "rejected", "Attention of")


def test_it_shows_a_finished_root(small: Path) -> None:
    _, found = docs_script(NOTEBOOK).app.run()
    assert found["versions"]["name"].to_list() == ["small/1"]
    assert found["differences"].is_empty(), "one version does not differ from itself"
    assert "filter" in found["rejected"].columns
    assert found["maps"]["cross"].weights.ndim == 4
    assert isinstance(found["translation"], str)


def test_an_empty_root_is_said_to_be_empty(tmp_path: Path) -> None:
    outputs, found = docs_script(NOTEBOOK).app.run()
    assert "differences" not in found
    assert any("No model is registered" in getattr(each, "text", "") for each in outputs)


@pytest.mark.slow
def test_it_opens_in_a_browser(small: Path, browser: Browser) -> None:
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "marimo", "run", f"{DOCS / NOTEBOOK}", "--headless", "--port", f"{port}"]
    server = subprocess.Popen(command, env=dict(os.environ), start_new_session=True, preexec_fn=die_with_parent())
    try:
        wait_for(lambda: healthy(f"{address}/health"))
        page = browser.new_page()
        page.set_default_timeout(MILLISECONDS)
        expect.set_options(timeout=MILLISECONDS)
        page.goto(address)
        for part in PARTS:
            expect(page.get_by_role("heading").filter(has_text=part)).to_be_visible()
        expect(page.locator("img")).to_have_count(2)
        assert page.get_by_text("Traceback").count() == 0
    finally:
        terminate_group(server)
