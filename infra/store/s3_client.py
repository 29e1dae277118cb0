"""Lists, reads and writes objects of an S3-compatible store below one address ``s3://bucket/prefix``.

Endpoint, region and credentials come from the usual AWS variables and files. An error is one sentence that names the
endpoint and the object. It never contains a secret.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration, NetworkFault, NoSpace
from infra.guards.address_secrets import public_address
from infra.guards.path_names import is_path_name
from infra.processes import signals

SCHEME = "s3://"
MAX_ATTEMPTS = 6
"""Attempts of each request to a busy or broken server, with pauses that grow to about 20 s."""
BLOCK_BYTES = 2**24
REQUESTS_AT_ONCE = 16
QUOTA_CODES = ("QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull")
"""Error codes for a full quota or disk. Ceph sends them with status 403, which otherwise means refused credentials."""
CONNECT_SECONDS = 10
READ_SECONDS = 60


class PreconditionFailed(Exception):
    """A write that requires an absent object found one."""


class NoSuchKey(Exception):
    """There is no such object."""


class AccessRefused(BadConfiguration):
    """The store refuses the request to these credentials."""


@dataclass(frozen=True)
class ObjectInfo:
    """An object in a listing; ``modified`` in seconds since 1970."""

    bytes: int
    etag: str
    modified: float = 0.0


class Bucket:
    """The objects below ``address``. Methods raise NetworkFault or BadConfiguration; writing methods also NoSpace."""

    def __init__(self, address: str) -> None:
        self.address = check_s3_url(address)
        self.name, _, prefix = self.address.removeprefix(SCHEME).partition("/")
        self._prefix = f"{prefix}/" if prefix else ""

    @cached_property
    def _files(self) -> Any:
        import s3fs

        retries = {"mode": "standard", "max_attempts": MAX_ATTEMPTS}
        timeouts = {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
        # s3fs repeats requests that botocore already repeated: its default would wait 15 minutes for an absent server.
        files = s3fs.S3FileSystem(
            endpoint_url=_endpoint_url() or None,
            use_listings_cache=False,
            config_kwargs={"retries": retries, **timeouts},
        )
        files.retries = 2
        return files

    def list(self, folder: str) -> dict[str, ObjectInfo]:
        """Map the name of each object below ``folder``, relative to it, to its info; one request per 1,000 objects.

        A name that is no path below the folder is left out, because names of objects become paths of files.
        """
        found: dict[str, ObjectInfo] = {}
        start = self._key(f"{folder}/" if folder else "")
        token: dict[str, str] = {}
        while True:
            page = self._call(folder, "list_objects_v2", Prefix=start, **token)
            for entry in page.get("Contents", ()):
                info = ObjectInfo(entry["Size"], entry["ETag"], entry["LastModified"].timestamp())
                name = entry["Key"].removeprefix(start)
                if is_path_name(name):
                    found[name] = info
            if not page.get("IsTruncated"):
                return found
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def read(self, name: str) -> bytes:
        """Return the content of a small object. Raises NoSuchKey."""
        with self._translated_errors(name):
            content: bytes = self._files.cat_file(self._path(name), max_concurrency=1)  # more also requests the size
            return content

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield the content of an object block by block. Raises NoSuchKey."""
        with (
            self._translated_errors(name),
            self._files.open(self._path(name), block_size=BLOCK_BYTES, cache_type="none") as file,
        ):
            while block := file.read(BLOCK_BYTES):
                signals.check()
                yield block

    def download(self, name: str, path: Path) -> str:
        """Write an object to a file; return the sha256 of the bytes that arrived. Raises NoSuchKey."""
        digest = hashlib.sha256()
        with path.open("wb") as file:
            for block in self.blocks(name):
                digest.update(block)
                file.write(block)
        return digest.hexdigest()

    def put_if_absent(self, name: str, content: bytes) -> None:
        """Write a small object only if there is none; otherwise raise PreconditionFailed.

        A repeated request also raises it if its own first try wrote the object: the caller must read the object.
        """
        self.put(name, content, IfNoneMatch="*")

    def put(self, name: str, content: bytes, **conditions: str) -> None:
        """Write a small object, or replace it."""
        self._call(name, "put_object", Key=self._key(name), Body=content, **conditions)

    def upload(self, path: Path, name: str) -> None:
        """Upload a file, a large one in parts."""
        signals.check()
        with self._translated_errors(name):
            self._files.put_file(str(path), self._path(name))

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, several at a time; names without an object are ignored.

        An interrupted process deletes too, because it cleans up.
        """
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="delete") as pool:
            list(pool.map(self._delete, names))

    def _delete(self, name: str) -> None:
        with contextlib.suppress(NoSuchKey):
            self._call(name, "delete_object", Key=self._key(name))

    def abort_uploads(self, before: float, *, delete: bool) -> int:
        """Return the number of unfinished multipart uploads begun before that time; ``delete`` aborts them."""
        uploads: list[Any] = []
        markers: dict[str, str] = {}
        while True:
            page = self._call("", "list_multipart_uploads", Prefix=self._prefix, **markers)
            uploads += page.get("Uploads", ())
            if not page.get("IsTruncated"):
                break
            markers = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
        old = [each for each in uploads if each["Initiated"].timestamp() < before]
        for each in old if delete else ():
            self._call("", "abort_multipart_upload", Key=each["Key"], UploadId=each["UploadId"])
        return len(old)

    def clock_offset(self) -> float:
        """Return the seconds by which the store's clock is ahead of this machine's."""
        answer = self._call("", "list_objects_v2", Prefix=self._prefix, MaxKeys=1)
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return now.timestamp() - time.time()

    def url(self, name: str) -> str:
        """Return the address of an object, for messages."""
        return f"{self.address}/{name}" if name else self.address

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def _path(self, name: str) -> str:
        return f"{self.name}/{self._key(name)}"

    def _call(self, name: str, request: str, **arguments: Any) -> Any:
        with self._translated_errors(name):
            return self._files.call_s3(request, Bucket=self.name, **arguments)

    @contextlib.contextmanager
    def _translated_errors(self, name: str) -> Iterator[None]:
        """Translate errors about ``name`` into the errors of this module, each with one sentence."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (OSError, BotoCoreError, ClientError) as error:
            raise self._to_fault(name, error) from error

    def _to_fault(self, name: str, error: Exception) -> Exception:
        from botocore.exceptions import ClientError, NoCredentialsError, PartialCredentialsError

        where = f"{self.url(name)} at {endpoint()}"
        cause = error.__cause__ or error  # s3fs raises an OSError from botocore's error
        if isinstance(cause, NoCredentialsError | PartialCredentialsError):
            return BadConfiguration(f"no credentials for {where}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        response: dict[str, Any] = cause.response if isinstance(cause, ClientError) else {}
        code = str(response.get("Error", {}).get("Code", ""))
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code == "NoSuchBucket":
            return BadConfiguration(f"there is no bucket {self.name!r} at {endpoint()}: create it, or set REPRO_ROOT")
        if status == 412 or code in ("PreconditionFailed", "ConditionalRequestConflict"):
            return PreconditionFailed(where)
        if status == 404 or isinstance(error, FileNotFoundError):
            return NoSuchKey(where)
        if code in QUOTA_CODES or status == 507:
            return NoSpace(f"{where} has no space left ({code or status}): raise its quota, or run `repro gc --delete`")
        if status in (401, 403) or isinstance(error, PermissionError):
            return AccessRefused(f"{where} is refused to these credentials ({code or 'access denied'})")
        if status in (400, 405, 409, 411, 416, 501):
            return BadConfiguration(f"{where}: the store refuses the request ({code or status})")
        reason = f"{code} ({status})" if code else type(error).__name__
        return NetworkFault(f"{where} still failed after several tries: {reason}")


def check_s3_url(address: str) -> str:
    """Return ``s3://bucket/prefix`` without a final slash; raises BadConfiguration for another form."""
    parts = address.removeprefix(SCHEME).rstrip("/").split("/")
    if not address.startswith(SCHEME) or not all(parts):
        raise BadConfiguration(f"REPRO_ROOT is {address!r}, allowed is a folder or s3://bucket/prefix")
    return f"{SCHEME}{'/'.join(parts)}"


def endpoint() -> str:
    """Return the server from the usual variables, without secrets."""
    return public_address(_endpoint_url()) or "AWS"


def _endpoint_url() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
