"""Downloads a file of the catalogue and checks it: mirrors first, then upstream. A later attempt resumes."""

import io
import logging
import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from infra.errors import BadData, Fault, NetworkFault, NoSpace
from infra.fetch import Download, NotFound, Unreachable, open_download
from infra.guards.address_secrets import public_address, public_text
from infra.guards.shown_text import shown
from tasks.corpus.catalogue import EMBEDDED, File
from tasks.corpus.partial_file import PartialFile
from tasks.demo import corpus as demo_corpus
from tasks.engine.stage import Facts, progress

RESUME_AT_ONCE_BYTES = 1 << 16
"""A download that broke off after this many bytes is resumed at once; with fewer bytes it could retry forever."""
HOW_TO_MIRROR = "Put the file under that path below a folder or URL, and name it in REPRO_MIRRORS (separated by spaces)"

log = logging.getLogger(__name__)


class _ChecksumMismatch(Exception):
    """The URL has another file."""


def fetch_file(file: File, folder: Path, mirrors: tuple[str, ...]) -> Facts:
    """Download ``file`` into ``folder`` from a mirror or its own URL; returns its ``bytes``, ``sha256`` and ``origin``.

    Resumes a partial file in ``folder`` if the server supports ranges. Raises BadData if no URL has the right file,
    NetworkFault if a URL did not answer and no other had the file, and NoSpace before the disk is full. The partial
    file stays after a NetworkFault, when the stage is retried, and after an interrupt; other errors delete it.
    """
    problems: list[str] = []
    kind: type[Fault] = BadData
    partial = PartialFile(folder / file.name, file)
    try:
        mirrored = [] if file.url.startswith(EMBEDDED) else [f"{mirror.rstrip('/')}/{file.path}" for mirror in mirrors]
        for url in filter(None, (*mirrored, file.url)):
            place = public_address(url)
            try:
                _download(partial, url)
                return partial.facts(url)
            except NotFound as error:
                problems.append(f"{place} does not have it ({error})")
            except _ChecksumMismatch as error:
                problems.append(f"{place} has {error}")
                log.warning("Skipping %s: expected %s, found %s", place, _expected_checksum(file), error)
            except Unreachable as error:
                reason = shown(public_text(f"{error}", url))
                problems.append(f"{place} does not answer ({reason})")
                kind = NetworkFault
                log.warning("Could not download %s from %s: %s", file.path, place, reason)
        if not file.url:
            problems.append("the catalogue has no URL for it, so only a mirror can provide it")
        expected = _expected_checksum(file)
        if kind is BadData and (own := Path(file.url)).is_absolute():
            changed = f"is not the file that the run names ({expected}); put that back, or `repro new` with --replace"
            raise BadData(f"{own.resolve()} {changed if own.exists() else 'is gone; put it back'}")
        raise kind(f"{file.path} ({expected}) could not be downloaded: {'; '.join(problems)}. {HOW_TO_MIRROR}.")
    except (Fault, OSError) as error:
        if not isinstance(error, NetworkFault) or not partial.size:
            partial.discard()
        raise
    finally:
        partial.close()


def _expected_checksum(file: File) -> str:
    return f"sha256 {file.sha256}" if file.sha256 else f"md5 {file.md5}"


def _download(partial: PartialFile, url: str) -> None:
    """Download until the checksum is right. Raises Unreachable, NotFound, or (all bytes deleted) _ChecksumMismatch."""
    while not partial.is_complete:
        offset = partial.size
        try:
            offset = _append_from(partial, url, offset)
        except Unreachable:
            if partial.is_complete:  # the server announced more bytes than the file has
                return
            if partial.size >= offset + RESUME_AT_ONCE_BYTES:
                continue
            raise
        if partial.is_complete:
            return
        difference = partial.difference
        partial.restart()
        if not offset:  # otherwise the bytes of an earlier attempt may be wrong
            raise _ChecksumMismatch(difference)


def _append_from(partial: PartialFile, url: str, offset: int) -> int:
    """Append the bytes of one request from ``offset`` on; returns the offset at which the server began."""
    file = partial.file
    with _open_source(url, offset) as source:
        if source.begin != offset:
            partial.restart()
            offset = 0
        total = source.begin + source.length if source.announced else file.size
        if file.size and total > file.size:
            partial.restart()
            raise _ChecksumMismatch(f"{total} bytes instead of {file.size}")
        needed, free = total - partial.size, shutil.disk_usage(partial.path.parent).free
        if needed > free:
            raise NoSpace(
                f"no space left under {partial.path.parent}: {file.path} needs {needed:,} bytes and {free:,} are free; "
                "free some, or set REPRO_ROOT to another disk"
            )
        for block in source.blocks():
            partial.append(block)
            if file.size and partial.size > file.size:
                break
            progress(partial.size, max(total, partial.size), file.path)
        if not source.announced and partial.size < file.size:
            raise Unreachable(f"broke off after {partial.size:,} of {file.size:,} bytes")
    return offset


def _open_source(url: str, offset: int) -> AbstractContextManager[Download]:
    if url.startswith(EMBEDDED):
        stream = io.BytesIO(demo_corpus.content(url.removeprefix(EMBEDDED)))
        return nullcontext(Download(stream, stream.read))
    return open_download(url, offset)
