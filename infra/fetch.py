"""Opens a download at a byte offset: HTTP addresses, folders, and every address that fsspec supports.

There are two errors: NotFound (the source does not have the file) and Unreachable (no answer, or a broken connection).
"""

import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

BLOCK = 1 << 18
"""The most bytes of one read."""
READ_TIMEOUT_SECONDS = 60.0
"""How long the program waits for a server that sends nothing."""
MIN_BYTES_PER_TIMEOUT = 1 << 16
"""Fewer bytes within READ_TIMEOUT_SECONDS end the download: at this speed the paper's archives would take weeks."""
TEMPORARY = (408, 425, 429)
"""Client errors (HTTP statuses) that may be gone at a later attempt."""

_RANGE = re.compile(r"bytes (\d+)-\d*/")


class NotFound(Exception):
    """The source does not have the file."""


class Unreachable(Exception):
    """The source did not answer, or the connection broke."""


@dataclass
class Download:
    """An open stream that starts at byte ``begin``, which is 0 if the server does not support ranges.

    ``length`` is the number of bytes from there; it is valid if the server ``announced`` it.
    """

    stream: IO[bytes]
    read: Callable[[int], bytes]
    begin: int = 0
    length: int = 0
    announced: bool = False

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes as they arrive; raises Unreachable if they end too early or arrive too slowly."""
        remaining = self.length
        received = 0
        since = time.monotonic()
        while remaining or not self.announced:
            # Translate errors of the read alone, so that a full disk does not count as a silent server.
            with _translated_errors():
                block = self.read(min(remaining, BLOCK) if self.announced else BLOCK)
            if not block:
                break
            remaining -= len(block)
            yield block
            received += len(block)
            if (waited := time.monotonic() - since) >= READ_TIMEOUT_SECONDS:
                if received < MIN_BYTES_PER_TIMEOUT and remaining:
                    raise Unreachable(f"gave {received:,} bytes in {waited:.0f} s")
                received = 0
                since = time.monotonic()
        if self.announced and remaining:
            raise Unreachable(f"broke off {remaining:,} bytes before its end")


@contextmanager
def open_download(address: str, begin: int) -> Iterator[Download]:
    """Open ``address`` at byte ``begin``, or at 0 if the source has no ranges; raises NotFound or Unreachable."""
    with _translated_errors():
        is_http = address.startswith(("http://", "https://"))
        download = _open_http(address, begin) if is_http else _open_fsspec(address, begin)
    try:
        yield download
    finally:
        download.stream.close()


def _open_http(address: str, begin: int) -> Download:
    request = urllib.request.Request(address, headers={"User-Agent": "repro", "Accept-Encoding": "identity"})
    if begin:
        request.add_header("Range", f"bytes={begin}-")
    try:
        response = urllib.request.urlopen(request, timeout=READ_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and begin:  # no such byte: the partial file belongs to another file
            return _open_http(address, 0)
        if error.code < 500 and error.code not in TEMPORARY:
            raise NotFound(f"status {error.code}") from error
        raise Unreachable(f"status {error.code}") from error
    length = response.headers.get("Content-Length", "")
    announced = length.isdecimal() and not response.headers.get("Transfer-Encoding")
    content_range = response.headers.get("Content-Range", "")
    match = _RANGE.match(content_range) if response.status == 206 else None
    if response.status == 206 and (not match or int(match[1]) != begin):
        response.close()
        raise Unreachable(f"asked for byte {begin} it gave {content_range or 'another part'}")
    # read1 returns what has arrived, so that a stalled connection loses nothing.
    return Download(response, response.read1, begin if match else 0, int(length) if announced else 0, announced)


def _open_fsspec(address: str, begin: int) -> Download:
    import fsspec

    stream = fsspec.open(address, "rb").open()
    size = getattr(stream, "size", None)
    begin = begin if size and begin <= size else 0  # a longer partial file belongs to another file
    stream.seek(begin)
    return Download(stream, stream.read, begin, (size or 0) - begin, size is not None)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise every error of a source as NotFound or Unreachable."""
    try:
        yield
    except (NotFound, Unreachable):
        raise
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise NotFound("no such file") from error
    except Exception as error:  # every protocol of fsspec has its own errors
        reason = getattr(error, "reason", error)
        raise Unreachable(str(reason) or type(error).__name__) from error
