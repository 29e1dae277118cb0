"""A bucket as two machines see it."""

from pathlib import Path

import pytest
from s3_server import Server

from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket


@pytest.fixture
def store(s3: Server, tmp_path: Path) -> S3Store:
    return S3Store(tmp_path / "here", Bucket(f"s3://{s3.bucket}/store"), 10**9)


@pytest.fixture
def other(store: S3Store, tmp_path: Path) -> S3Store:
    """The same bucket from another machine."""
    return S3Store(tmp_path / "there", Bucket(store.bucket.address), 10**9)
