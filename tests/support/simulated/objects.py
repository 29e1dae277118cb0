"""An S3 in memory, below ``Bucket``: strongly consistent, with ``If-None-Match`` alone, and answers that get lost."""

import hashlib
import io
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from infra.store.s3_client import Bucket
from simulated.cluster import Cluster

REQUEST_FAULTS = ("refuse", "lose the answer", "repeat", "repeat later", "late request", "late answer")
"""A request fails, takes effect without an answer, takes effect twice (the client meets no answer and sends it again),
or takes long before or after it takes effect."""

T = TypeVar("T")


class Objects:
    """Stands in for s3fs. Each request is one step; a fault that is due strikes the next request."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.content: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.modified: dict[str, datetime] = {}
        self._listed: dict[object, str] = {}
        self.on_write: Callable[[str, bytes], None] = lambda key, content: None
        self.on_delete: Callable[[str], None] = lambda key: None
        """Called before an object is written or deleted."""
        self.looked_at: dict[object, str] = {}
        """The folder that a thread listed by the request before its present one; "" if that was no listing."""

    def _request(self, request: str, act: Callable[[], T]) -> T:
        """Do what a request asks for, struck by the fault that is due."""
        process, thread = self.cluster.current, self.cluster.thread
        self.looked_at[thread] = self._listed.pop(thread, "")
        self.cluster.step(request)
        if process is None or not process.request_fault:
            return act()
        fault, process.request_fault = process.request_fault, ""
        seconds = process.request_seconds
        if fault in ("refuse", "lose the answer"):
            process.disturbed = True
            if fault == "lose the answer":
                act()
            raise TimeoutError(request) if seconds % 2 else _error("SlowDown", 503)
        if fault == "repeat":
            act()
            return act()
        if fault == "late request":
            self.cluster.sleep(seconds)
        answer = act()
        if fault != "late request":
            self.cluster.sleep(seconds)
        return act() if fault == "repeat later" else answer

    def call_s3(self, request: str, Bucket: str, **told: Any) -> dict[str, Any]:
        act: Callable[[dict[str, Any]], dict[str, Any]] = getattr(self, f"_{request}")
        return self._request(f"{request} {told.get('Key', told.get('Prefix', ''))}", lambda: act(told))

    def _list_objects_v2(self, told: dict[str, Any]) -> dict[str, Any]:
        self._listed[self.cluster.thread] = told["Prefix"]
        found = sorted(key for key in self.content if key.startswith(told["Prefix"]))
        return {
            "Contents": [
                {"Key": k, "Size": len(self.content[k]), "ETag": self.etags[k], "LastModified": self.modified[k]}
                for k in found
            ]
        }

    def _put_object(self, told: dict[str, Any]) -> dict[str, Any]:
        if told.get("IfNoneMatch") and told["Key"] in self.content:
            raise _error("PreconditionFailed", 412)
        self.store(told["Key"], told["Body"])
        return {"ETag": self.etags[told["Key"]]}

    def _delete_object(self, told: dict[str, Any]) -> dict[str, Any]:
        self.remove(told["Key"])
        return {}

    def _delete_objects(self, told: dict[str, Any]) -> dict[str, Any]:
        for each in told["Delete"]["Objects"]:
            self.remove(each["Key"])
        return {}

    def store(self, key: str, content: bytes) -> None:
        self.on_write(key, content)
        self.content[key] = bytes(content)
        self.etags[key] = f'"{hashlib.md5(content).hexdigest()}"'
        self.modified[key] = datetime.fromtimestamp(self.cluster.now, UTC)

    def remove(self, key: str) -> None:
        if key in self.content:
            self.on_delete(key)
            del self.content[key], self.etags[key], self.modified[key]

    def cat_file(self, path: str, max_concurrency: int = 1) -> bytes:
        def act() -> bytes:
            key = path.partition("/")[2]
            if key not in self.content:
                raise FileNotFoundError(path)
            return self.content[key]

        return self._request(f"get {path}", act)

    def open(self, path: str, **told: Any) -> io.BytesIO:
        return io.BytesIO(self.cat_file(path))

    def put_file(self, path: str, target: str) -> None:
        key, content = target.partition("/")[2], Path(path).read_bytes()
        self._request(f"put {target}", lambda: self.store(key, content))


def bucket_of(objects: Objects) -> Bucket:
    """The bucket as a process sees it: the real client over these objects."""
    bucket = Bucket("s3://bucket/prefix")
    bucket.__dict__["_files"] = objects  # a cached property
    return bucket


def _error(code: str, status: int) -> Exception:
    from botocore.exceptions import ClientError

    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")
