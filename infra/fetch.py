"""Bytes from elsewhere, from a given place on: addresses of the web, folders, whatever fsspec opens.

In comes an address and how much is there already, out comes a stream that says where it begins. Ways of failing are
two: the address does not have it, or it did not answer. What the bytes are is not known here.
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
"""Most bytes read at once."""
READ_TIMEOUT_SECONDS = 60.0
"""How long a server may say nothing, at the beginning and in between."""
MIN_BYTES_PER_TIMEOUT = 1 << 16
"""Fewest bytes in that time: with less the paper's archives would come in weeks."""
TEMPORARY = (408, 425, 429)
"""Refusals that a later try may not meet; others below 500 stay."""

_RANGE = re.compile(r"bytes (\d+)-\d*/")


class NotFound(Exception):
    """This origin does not have it."""


class Unreachable(Exception):
    """This origin did not answer, or broke off."""


@dataclass
class Download:
    """An open stream. ``begin``: the byte that comes first, 0 where the server knows no ranges. ``length``: bytes
    that it announced, if it ``announced`` any."""

    stream: IO[bytes]
    read: Callable[[int], bytes]
    begin: int = 0
    length: int = 0
    announced: bool = False

    def blocks(self) -> Iterator[bytes]:
        """What comes, as it comes; raises Unreachable when it ends before its announced length, or
        all but stands still."""
        left, came, since = self.length, 0, time.monotonic()
        while left or not self.announced:
            # Reading alone is guarded, so that a full disk is not taken for a silent server.
            with _translated_errors():
                block = self.read(min(left, BLOCK) if self.announced else BLOCK)
            if not block:
                break
            left -= len(block)
            yield block
            came += len(block)
            if (waited := time.monotonic() - since) >= READ_TIMEOUT_SECONDS:
                if came < MIN_BYTES_PER_TIMEOUT and left:
                    raise Unreachable(f"gave {came:,} bytes in {waited:.0f} s")
                came, since = 0, time.monotonic()
        if self.announced and left:
            raise Unreachable(f"broke off {left:,} bytes before its end")


@contextmanager
def open_download(address: str, begin: int) -> Iterator[Download]:
    """Open ``address`` at byte ``begin``, or at 0 where that cannot be; raises Missing or Unreachable."""
    with _translated_errors():
        origin = (
            _open_http(address, begin) if address.startswith(("http://", "https://")) else _open_fsspec(address, begin)
        )
    try:
        yield origin
    finally:
        origin.stream.close()


def _open_http(address: str, begin: int) -> Download:
    request = urllib.request.Request(address, headers={"User-Agent": "repro", "Accept-Encoding": "identity"})
    if begin:
        request.add_header("Range", f"bytes={begin}-")
    try:
        answer = urllib.request.urlopen(request, timeout=READ_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and begin:  # there is no such byte: what is there already is not this file
            return _open_http(address, 0)
        if error.code < 500 and error.code not in TEMPORARY:
            raise NotFound(f"status {error.code}") from error
        raise Unreachable(f"status {error.code}") from error
    length = answer.headers.get("Content-Length", "")
    known = length.isdecimal() and not answer.headers.get("Transfer-Encoding")
    said = _RANGE.match(answer.headers.get("Content-Range", "")) if answer.status == 206 else None
    if answer.status == 206 and (not said or int(said[1]) != begin):
        answer.close()
        raise Unreachable(f"asked for byte {begin} it gave {answer.headers.get('Content-Range', 'another part')}")
    # read1 gives what has come at once: nothing of it is lost when the next bytes do not come.
    return Download(answer, answer.read1, begin if said else 0, int(length) if known else 0, known)


def _open_fsspec(address: str, begin: int) -> Download:
    import fsspec

    stream = fsspec.open(address, "rb").open()
    size = getattr(stream, "size", None)
    begin = min(begin, size or 0)
    stream.seek(begin)
    return Download(stream, stream.read, begin, (size or 0) - begin, size is not None)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Every way in which an origin fails, as Missing or Unreachable."""
    try:
        yield
    except (NotFound, Unreachable):
        raise
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise NotFound("no such file") from error
    except Exception as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(str(reason) or type(error).__name__) from error
