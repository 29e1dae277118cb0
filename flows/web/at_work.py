"""Finds running ``repro serve`` processes: each locks a file under the root that says what it serves."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from infra.processes.identity import process_identity
from infra.processes.locks import file_lock, lock_holder

FOLDER = "locks/serve"


@contextmanager
def announced(root: Path, versions: Sequence[str], where: str) -> Iterator[None]:
    """Make this process visible to ``serving`` during the block, if the root is writable."""
    said = f" serves {', '.join(versions)} at {where} since {datetime.now():%Y-%m-%d %H:%M}"
    file = root / FOLDER / process_identity().replace("/", "-")
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(file_lock(file, lambda _: None, "\n".join((said, *versions))))
            stack.callback(file.unlink, missing_ok=True)
        yield


def serving(root: Path) -> dict[str, list[str]]:
    """Map ``process 708 on vm serves demo/1 at http://127.0.0.1:8765 since …`` of each process to its versions."""
    holders = filter(None, map(lock_holder, sorted((root / FOLDER).glob("*"))))
    return {said: versions for said, *versions in map(str.splitlines, holders)}
