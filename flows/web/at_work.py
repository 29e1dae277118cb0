"""Finds running ``repro serve`` processes: each locks a file under the root that says what it serves."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from infra.processes.identity import process_identity
from infra.processes.locks import file_lock, lock_holder

FOLDER = "locks/serve"


@contextmanager
def announced(root: Path, served: str) -> Iterator[None]:
    """Make this process visible to ``serving`` during the block, if the root is writable."""
    file = root / FOLDER / process_identity().replace("/", "-")
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(file_lock(file, lambda _: None, served))
            stack.callback(file.unlink, missing_ok=True)
        yield


def serving(root: Path) -> list[str]:
    """List what each process serves: ``process 708 on vm serves demo/1 at http://127.0.0.1:8765 since …``."""
    return [*filter(None, map(lock_holder, sorted((root / FOLDER).glob("*"))))]
