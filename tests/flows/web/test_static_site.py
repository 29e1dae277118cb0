"""The site beside the translation page: written when asked for, by exact names alone, renewed behind its old pages."""

import asyncio
import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from web_fake import Fake, served, until

from flows.web.static_site import SELF_CONTAINED_POLICY, StaticSite


class Writer:
    """Writes a small site with the number of the writing; fails while ``broken``."""

    def __init__(self) -> None:
        self.calls, self.broken = 0, False

    async def __call__(self, folder: Path) -> None:
        self.calls += 1
        await asyncio.sleep(0)
        if self.broken:
            raise RuntimeError("no registry")
        (folder / "versions").mkdir(exist_ok=True)
        (folder / "index.html").write_text(f"<title>{self.calls}</title>")
        (folder / "partial").write_text("a report")
        (folder / "partial").rename(folder / "versions" / "1-report.html")  # a request may read it meanwhile
        (folder / "site.json").write_text("[]")


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def port(writer: Writer, tmp_path: Path) -> Iterator[int]:
    folder = tmp_path / "site"
    folder.mkdir()
    (tmp_path / "secret.html").write_text("secret")
    with served([Fake()], site=StaticSite(folder, writer, renew_seconds=0.0)) as site:
        yield site.port


def get(port: int, path: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return found


def test_the_site_is_written_at_the_first_request_and_renewed_later(port: int, writer: Writer) -> None:
    assert get(port, "/healthz")[0] == 200
    assert writer.calls == 0, "nobody asked for it"
    status, text, headers = get(port, "/site/")
    assert (status, text) == (200, "<title>1</title>")
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in headers["content-security-policy"]
    until(lambda: get(port, "/site/index.html")[1] != "<title>1</title>")
    assert get(port, "/site")[2]["location"].endswith("/site/")


def test_only_files_of_the_site_are_served(port: int) -> None:
    for path in ("/site/../secret.html", "/site/%2e%2e/secret.html", "/site/..%2fsecret.html", "/site//etc/passwd",
                 "/site/versions", "/site/site.json", "/site/versions/../index.html"):  # fmt: skip
        status, text, _ = get(port, path)
        assert status == 404, path
        assert "secret" not in text
    status, text, headers = get(port, "/site/versions/1-report.html")
    assert (status, text) == (200, "a report")
    assert headers["content-security-policy"] == SELF_CONTAINED_POLICY


def test_a_failure_is_said_and_the_next_request_tries_again(port: int, writer: Writer) -> None:
    writer.broken = True
    status, text, _ = get(port, "/site/")
    assert status == 500
    assert "server's log" in text
    writer.broken = False
    assert get(port, "/site/")[0] == 200
    writer.broken = True
    calls = writer.calls
    until(lambda: get(port, "/site/")[0] == 200 and writer.calls > calls)
    assert get(port, "/site/")[0] == 200, "the old pages stay"
