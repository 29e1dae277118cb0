"""Lets one process of all machines work in a shared folder: a marker in the bucket names it."""

import contextlib
import json
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from infra.errors import BadConfiguration, Fault
from infra.processes.identity import process_identity, process_state
from infra.store.s3_client import Bucket, NoSuchKey, PreconditionFailed

MARKER = "holder.json"
UNREADABLE = {"holder": "an unknown process", "process": "", "mark": ""}


@contextlib.contextmanager
def claimed_in_bucket(
    bucket: Bucket,
    folder: str,
    here: AbstractContextManager[object],
    take_over: bool,
    say: Callable[[str], None],
) -> Iterator[Callable[[], None]]:
    """See ``Store.claimed``; ``here`` is the claim on this machine."""
    name = f"{folder}/{MARKER}"
    mark = uuid.uuid4().hex
    with here:
        found = _write(bucket, name, mark)
        if found and (take_over or process_state(found["process"]) == "gone"):
            say(f"{folder}: taken over from {found['holder']}")
            bucket.delete([name])
            found = _write(bucket, name, mark)
        if found:
            raise BadConfiguration(
                f"{folder} is used by {found['holder']}: wait for it, or, if it has ended there, repeat the command"
                " with --take-over"
            )

        def check() -> None:
            holder = _read(bucket, name)
            if holder["mark"] != mark:
                raise Fault(f"{holder['holder']} took over {folder}; this process ends")

        try:
            yield check
        finally:
            with contextlib.suppress(Fault):  # --take-over removes a marker that stays
                check()
                bucket.delete([name])


def _write(bucket: Bucket, name: str, mark: str) -> dict[str, str]:
    """Write this process's marker unless there is one; gives that of another process, {} if this one holds it."""
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    form = {"holder": holder, "process": process_identity(), "mark": mark}
    with contextlib.suppress(PreconditionFailed):
        bucket.put_if_absent(name, json.dumps(form, indent=1).encode())
    # Read in any case: a request repeated for want of an answer fails on its own first try.
    found = _read(bucket, name)
    return {} if found["mark"] == mark else found


def _read(bucket: Bucket, name: str) -> dict[str, str]:
    try:
        form = json.loads(bucket.read(name))
        return {each: f"{form[each]}" for each in UNREADABLE}
    except (NoSuchKey, ValueError, TypeError, KeyError):
        return UNREADABLE
