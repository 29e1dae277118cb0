"""Files of the catalogue, fetched and checked: mirrors first, then upstream.

In comes a ``File``, out goes a folder with that file under its own name. What the file holds is not known here.
"""

import hashlib
import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from infra.faults import BadData, Fault, NetworkFault
from tasks import demo_corpus
from tasks.corpora import EMBEDDED, File
from tasks.stage import Facts, progress, site, stage

BLOCK = 1 << 20
"""Bytes read at once."""
HOW_TO_MIRROR = "Put the file under that path below a folder or URL, and name it in REPRO_MIRRORS (separated by spaces)"

log = logging.getLogger(__name__)


class _Missing(Exception):
    """This origin does not have the file."""


class _Unreachable(Exception):
    """This origin did not answer, or broke off."""


class _WrongSum(Exception):
    """What came is another file."""


@dataclass
class Failures:
    """What went wrong at each origin, by kind; makes the one fault that a person reads."""

    missing: list[str] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def fault(self, file: File) -> Fault:
        """NetworkFault if trying again can help, else BadData."""
        told = [f"{file.path} could not be had."]
        if self.wrong:
            told.append(f"Expected {_expected(file)}; wrong: {'; '.join(self.wrong)}.")
        if self.unreachable:
            told.append(f"No answer: {'; '.join(self.unreachable)}.")
        if self.missing:
            told.append(f"Not at: {', '.join(self.missing)}.")
        if not file.url:
            told.append("No address is published for it, only mirrors can have it.")
        if not self.wrong:
            told.append(f"{HOW_TO_MIRROR}.")
        return (NetworkFault if self.unreachable else BadData)(" ".join(told))


def origins(file: File, mirrors: tuple[str, ...]) -> tuple[str, ...]:
    """Where to look, in order: each mirror by the relative path, then upstream; text that is generated, only there."""
    if file.url.startswith(EMBEDDED):
        return (file.url,)
    mirrored = tuple(f"{mirror.rstrip('/')}/{file.path}" for mirror in mirrors)
    return mirrored + ((file.url,) if file.url else ())


def fetch(file: File, folder: Path, mirrors: tuple[str, ...]) -> Facts:
    """Put the file into ``folder`` under its own name; gives its ``bytes``, ``sha256`` and ``origin``.

    Raises BadData when no origin has it or all have a wrong one, NetworkFault when one did not answer and none had it;
    then ``folder`` is as it was.
    """
    failures = Failures()
    part = folder / f"{file.name}.part"
    for origin in origins(file, mirrors):
        try:
            size, sha256 = _copy(file, origin, part)
        except _Missing:
            failures.missing.append(origin)
        except _Unreachable as error:
            failures.unreachable.append(f"{origin} ({error})")
            log.warning("%s did not come from %s: %s", file.path, origin, error)
        except _WrongSum as error:
            failures.wrong.append(f"{origin} has {error}")
            log.warning("%s from %s has %s, expected is %s; it is not used", file.path, origin, error, _expected(file))
        else:
            part.rename(folder / file.name)
            return {"bytes": size, "sha256": sha256, "origin": origin}
        finally:
            part.unlink(missing_ok=True)
    raise failures.fault(file)


def _expected(file: File) -> str:
    return f"sha256 {file.sha256}" if file.sha256 else f"md5 {file.md5}"


def _copy(file: File, origin: str, part: Path) -> tuple[int, str]:
    """Stream ``origin`` into ``part``; bytes and sha256 of what came. _WrongSum if it is not what it must be."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    size = 0
    with _opened(origin) as stream, part.open("wb") as out:
        for block in _blocks(stream):
            size += len(block)
            if file.size and size > file.size:
                raise _WrongSum(f"more than the expected {file.size} bytes")
            sha256.update(block)
            if not file.sha256:
                md5.update(block)
            out.write(block)
            progress(size, file.size or size, file.path)
    name, found = ("sha256", sha256.hexdigest()) if file.sha256 else ("md5", md5.hexdigest())
    if found != (file.sha256 or file.md5):
        raise _WrongSum(f"{name} {found}, {size} bytes")
    if file.size and size != file.size:
        raise _WrongSum(f"{size} bytes instead of {file.size}")
    return size, sha256.hexdigest()


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Reading alone is guarded, so that a full disk is not taken for a silent server."""
    while True:
        with _told():
            block = stream.read(BLOCK)
        if not block:
            return
        yield block


@contextmanager
def _opened(origin: str) -> Iterator[IO[bytes]]:
    if origin.startswith(EMBEDDED):
        yield io.BytesIO(demo_corpus.content(origin.removeprefix(EMBEDDED)))
        return
    with _told():
        stream = _open(origin)
    try:
        yield stream
    finally:
        stream.close()


def _open(origin: str) -> IO[bytes]:
    import fsspec

    settings: dict[str, Any] = {}
    if origin.startswith(("http://", "https://")):
        import aiohttp

        # aiohttp's own limit is five minutes for the whole file, too little for an archive of gigabytes.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
        settings = {"client_kwargs": {"timeout": timeout}, "block_size": 0}
    return cast(IO[bytes], fsspec.open(origin, "rb", **settings).open())


@contextmanager
def _told() -> Iterator[None]:
    """Every way in which an origin fails, as _Missing or _Unreachable."""
    try:
        yield
    except Exception as told:
        # fsspec reports whatever goes wrong with an address as FileNotFoundError; the truth is its cause.
        error = told.__cause__ if isinstance(told, FileNotFoundError) and told.__cause__ else told
        if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
            raise _Missing from error
        status = getattr(error, "status", 0)
        if 400 <= status < 500 and status not in (408, 425, 429):
            raise _Missing from error
        raise _Unreachable(str(error) or type(error).__name__) from error


@stage(version=1, retries=3)
def download(out: Path, file: File) -> Facts:
    """One file of the catalogue.

    out/
      train.en.gz      under its own name, its sum checked
    """
    return fetch(file, out, site().mirrors)
