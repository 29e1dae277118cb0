"""An S3 in memory, below ``Bucket``: strongly consistent, with conditional writes, and with answers that get lost."""

import hashlib
import io
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.store.s3_client import Bucket
from simulated.machine import Machine

REQUEST_FAULTS = ("refuse", "lose the answer", "repeat")


class Objects:
    """Stands in for s3fs. Each request is one step; a fault that is due strikes the next request."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.content: dict[str, bytes] = {}
        self.modified: dict[str, datetime] = {}
        self.on_write: Callable[[str, bytes], None] = lambda key, content: None
        """Called before an object is written."""

    def etag(self, key: str) -> str:
        return f'"{hashlib.md5(self.content[key]).hexdigest()}"'

    def _begin(self, request: str) -> str:
        """The fault that strikes this request, if any."""
        process = self.machine.current
        self.machine.step(request)
        if process is None or not process.request_fault:
            return ""
        fault, process.request_fault = process.request_fault, ""
        process.disturbed = process.disturbed or fault != "repeat"
        if fault == "refuse":
            raise TimeoutError(request)
        return fault

    @staticmethod
    def _end(fault: str, request: str) -> None:
        if fault == "lose the answer":
            raise TimeoutError(request)

    def call_s3(self, request: str, Bucket: str, **told: Any) -> dict[str, Any]:
        fault = self._begin(f"{request} {told.get('Key', told.get('Prefix', ''))}")
        answer: dict[str, Any] = {}
        if request == "list_objects_v2":
            keys = sorted(key for key in self.content if key.startswith(told["Prefix"]))
            answer["Contents"] = [
                {"Key": k, "Size": len(self.content[k]), "ETag": self.etag(k), "LastModified": self.modified[k]}
                for k in keys
            ]
        elif request == "put_object":
            self._put(told)
            if fault == "repeat":  # the client met no answer and sent the request again
                self._put(told)
            answer["ETag"] = self.etag(told["Key"])
        elif request == "delete_objects":
            for each in told["Delete"]["Objects"]:
                self.content.pop(each["Key"], None)
        elif request == "delete_object":
            self._check_etag(told)
            self.content.pop(told["Key"], None)
        else:
            raise AssertionError(request)
        self._end(fault, request)
        return answer

    def _put(self, told: dict[str, Any]) -> None:
        key = told["Key"]
        if told.get("IfNoneMatch") and key in self.content:
            raise _error("PreconditionFailed", 412)
        self._check_etag(told)
        self.store(key, told["Body"])

    def _check_etag(self, told: dict[str, Any]) -> None:
        if (expected := told.get("IfMatch")) and told["Key"] not in self.content:
            raise _error("NoSuchKey", 404)
        if expected and self.etag(told["Key"]) != expected:
            raise _error("PreconditionFailed", 412)

    def store(self, key: str, content: bytes) -> None:
        self.on_write(key, content)
        self.content[key] = bytes(content)
        self.modified[key] = datetime.fromtimestamp(self.machine.now, UTC)

    def cat_file(self, path: str) -> bytes:
        fault = self._begin(f"get {path}")
        key = path.partition("/")[2]
        if key not in self.content:
            raise FileNotFoundError(path)
        content = self.content[key]
        self._end(fault, path)
        return content

    def open(self, path: str, **told: Any) -> io.BytesIO:
        return io.BytesIO(self.cat_file(path))

    def put_file(self, path: str, target: str) -> None:
        fault = self._begin(f"put {target}")
        self.store(target.partition("/")[2], Path(path).read_bytes())
        self._end(fault, target)


def bucket_of(objects: Objects) -> Bucket:
    """The bucket as a process sees it: the real client over these objects."""
    bucket = Bucket("s3://bucket/prefix")
    bucket.__dict__["_files"] = objects  # a cached property
    return bucket


def _error(code: str, status: int) -> Exception:
    from botocore.exceptions import ClientError

    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")
