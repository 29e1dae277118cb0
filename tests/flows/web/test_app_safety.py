"""The API against hostile pages and text: foreign hosts and origins, credentials, forms, files, markup."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from web_fake import HOSTILE, Fake, Site, ask, error_of, served

import flows.web
from infra.servers.credentials import Credentials


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served([Fake(), Fake(name="other/7", answer=lambda _: HOSTILE[0])]) as site:
        yield site


def test_a_foreign_host_name_and_pages_of_other_sites_are_refused_before_any_work(site: Site) -> None:
    """By SameOrigin, whose own tests have every header."""
    for host in (f"evil.example:{site.port}", "["):
        assert httpx.get(f"{site.url}/api/models", headers={"host": host}).status_code == 400
    assert httpx.get(f"{site.url}/api/models", headers={"host": "localhost:1"}).status_code == 200
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    for headers in ({"origin": "https://evil.example"}, {"origin": "http://localhost:1"}, foreign):
        for answer in (
            httpx.get(f"{site.url}/api/models", headers=headers),
            httpx.post(f"{site.url}/api/translate", json={"text": "a"}, headers=headers),
            httpx.post(f"{site.url}/api/attention", json={"source": "a"}, headers=headers),
        ):
            assert answer.status_code == 403
            assert error_of(answer) == "requests of other origins are refused"


def test_with_credentials_every_request_needs_them() -> None:
    with served([Fake()], credentials=Credentials("reader", "long-enough-a-word")) as site:
        for auth in (None, ("reader", "wrong"), ("", "")):
            answer = httpx.get(f"{site.url}/api/models", auth=auth)
            assert answer.status_code == 401
            assert error_of(answer) == "user and password are missing or wrong"
            assert answer.headers["www-authenticate"].startswith("Basic ")
        assert httpx.get(f"{site.url}/api/models", auth=("reader", "long-enough-a-word")).status_code == 200


def test_only_json_is_accepted_so_that_a_foreign_form_cannot_submit(site: Site) -> None:
    content = json.dumps({"text": "a"}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = httpx.post(f"{site.url}/api/translate", content=content, headers={"content-type": kind})
        assert answer.status_code == 422
        assert "Content-Type: application/json" in error_of(answer)


def test_hostile_text_is_only_ever_json(site: Site) -> None:
    for text in HOSTILE:
        for path in ("/api/translate", "/api/translate/stream"):
            answer = ask(site, path, text=text, model="other")
            assert answer.status_code == 200
            assert answer.headers["content-type"] in ("application/json", "application/x-ndjson")
            assert "set-cookie" not in answer.headers
        assert ask(site, text=text).json()["text"].split() == text.upper().split()


@pytest.mark.parametrize("path", ["/", "/docs", "/page.css", "/page.js", "/api/models", "/healthz", "/nowhere"])
def test_every_answer_forbids_content_of_other_origins(site: Site, path: str) -> None:
    headers = httpx.get(f"{site.url}{path}").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_the_page_loads_no_foreign_content_and_never_parses_text_as_html() -> None:
    files = [
        file
        for file in Path(flows.web.__file__).with_name("static").iterdir()
        if file.suffix in (".html", ".css", ".js")
    ]
    assert len(files) >= 7
    for file in files:
        text = file.read_text()
        outside = [found for found in re.findall(r"https?://[^\s'\"<]+", text) if "127.0.0.1" not in found]
        assert not outside, file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
        assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", text)


@pytest.mark.parametrize("path", ["/../pyproject.toml", "/%2e%2e/app.py", "/app.py", "//etc/passwd", "/static/page.js"])
def test_no_other_file_is_served(site: Site, path: str) -> None:
    answer = httpx.get(f"{site.url}{path}")
    assert answer.status_code == 404
    assert error_of(answer)
