"""Tests with a small object what these credentials may do in a bucket, and whether its store works as needed."""

import contextlib
import uuid

from infra.errors import BadConfiguration
from infra.store.s3_client import AccessRefused, Bucket, NoSuchKey, PreconditionFailed

PROBE = "probe"
"""Folder of the small objects. Without the right to delete, they stay until `repro gc`."""


def check_write_access(bucket: Bucket) -> None:
    """Write and delete a small object. Raises BadConfiguration if that is refused, NoSpace for a full quota."""
    name = _new_name()
    try:
        bucket.put(name, b"")
        bucket.delete([name])
    except AccessRefused as error:
        raise BadConfiguration(
            f"{bucket.address} cannot be written: {error}. A run writes to its root: use credentials that may write and"
            " delete there, or set REPRO_ROOT to another root"
        ) from error


def probe(bucket: Bucket) -> str:
    """Write, list, read and delete a small object; return what the store does wrong, or "".

    Raises BadConfiguration, NetworkFault or NoSpace if a request fails.
    """
    check_write_access(bucket)
    name = _new_name()
    bucket.put_if_absent(name, b"first")
    try:
        with contextlib.suppress(PreconditionFailed):
            bucket.put_if_absent(name, b"second")
            return "it ignores If-None-Match, so two machines that make the same artifact may mix its files"
        if not bucket.list(name.rpartition("/")[0]):
            return "a listing lacks an object that was just written"
        if bucket.read(name) != b"first":
            return "an object has other bytes than were written"
        bucket.delete([name])
        with contextlib.suppress(NoSuchKey):
            bucket.read(name)
            return "a deleted object is still there"
        return ""
    finally:
        bucket.delete([name])


def _new_name() -> str:
    return f"{PROBE}/{uuid.uuid4().hex}/object"
