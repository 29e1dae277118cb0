"""Serves a folder of static files that is written when it is first asked for, and again once it is old.

While the folder is written again its old files are served. A request names one of the files that were there when the
folder was last written; no route opens any other path.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

LOG = logging.getLogger(__name__)
PREFIX = "/site/"
RENEW_SECONDS = 600.0
MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".md": "text/markdown",
    ".txt": "text/plain",
}
SELF_CONTAINED = "-report.html"
"""The end of the name of pages that hold their own style and pictures."""
SELF_CONTAINED_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"


class StaticSite:
    """The folder and what writes it: ``write`` gets the folder, which then has an ``index.html``."""

    def __init__(
        self, folder: Path, write: Callable[[Path], Awaitable[None]], renew_seconds: float = RENEW_SECONDS
    ) -> None:
        self.folder = folder
        self.write = write
        self.renew_seconds = renew_seconds
        self._files: Mapping[str, Path] = {}
        self._written = -math.inf
        self._writing: asyncio.Task[None] | None = None

    async def file(self, name: str) -> Path | None:
        """The file of this name, or None. The first call waits until the folder is written."""
        if self._writing is None and time.monotonic() - self._written > self.renew_seconds:
            self._writing = asyncio.create_task(self._renew())
        if not self._files and self._writing:
            await asyncio.shield(self._writing)  # for all who wait: one of them may disconnect
        return self._files.get(name)

    async def close(self) -> None:
        """End the writing that is in progress."""
        if self._writing:
            self._writing.cancel()
            await asyncio.wait([self._writing])

    async def _renew(self) -> None:
        try:
            await self.write(self.folder)
            found = (path for path in self.folder.rglob("*") if path.is_file() and path.suffix in MEDIA_TYPES)
            self._files = {path.relative_to(self.folder).as_posix(): path for path in found}
            self._written = time.monotonic()
        except (OSError, RuntimeError) as error:
            if not self._files:
                raise
            LOG.error("the site is not up to date: it could not be written again", exc_info=error)
        finally:
            self._writing = None


def add_site(app: FastAPI, site: StaticSite) -> None:
    """Add the route ``/site/``."""

    @app.get(PREFIX.rstrip("/"), include_in_schema=False)
    async def without_slash() -> Response:
        return RedirectResponse(PREFIX)

    @app.get(f"{PREFIX}{{name:path}}", include_in_schema=False)
    async def of_site(name: str) -> Response:
        file = await site.file(name or "index.html")
        if file is None:
            raise HTTPException(404, "the site has no such page")
        headers = {"content-type": f"{MEDIA_TYPES[file.suffix]}; charset=utf-8", "cache-control": "no-cache"}
        if name.endswith(SELF_CONTAINED):
            headers["content-security-policy"] = SELF_CONTAINED_POLICY
        return Response(await asyncio.to_thread(file.read_bytes), headers=headers)
