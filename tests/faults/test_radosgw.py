"""Runs whose root is a bucket of Ceph's radosgw, which ends, stops, refuses, is full, or holds altered objects."""

import json
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from ceph_cluster import Cluster
from s3_server import client_of, variables_for
from services import (
    REPOSITORY,
    TIMEOUT_SECONDS,
    Services,
    artifact_digests,
    has_checkpoint,
    kill_tree,
    wait_for,
    wait_for_outcome,
)
from small_pipeline import processes

pytestmark = pytest.mark.slow
TRAINED = ("--until", "average")
SHARDS = ("--until", "shard")
OF_BUCKETS = (
    *("tests/infra/store", "tests/faults/test_bucket.py", "tests/flows/test_remote_root.py"),
    "tests/flows/test_at_once.py::test_two_machines_on_one_bucket_end_with_one_artifact_for_each_key",
    *("tests/flows/commands/test_storage.py", "tests/flows/inspection/test_doctor.py"),
)
"""What is tested with moto's buckets as long as no other server is asked for."""


@dataclass
class Root:
    """A root in a bucket of its own, and the machines that work in it, each with its cache."""

    services: Services
    gateway: Cluster
    folder: Path

    def __post_init__(self) -> None:
        self.bucket = f"test-{uuid.uuid4().hex[:12]}"
        self.address = f"s3://{self.bucket}/prefix"
        self.client.create_bucket(Bucket=self.bucket)

    @cached_property
    def client(self) -> Any:
        return client_of(self.gateway.address)

    def start(self, machine: str, *words: str, **more: str) -> subprocess.Popen[str]:
        """Start ``repro`` on a machine."""
        place = {"REPRO_CACHE": f"{self.folder / machine}", **variables_for(self.gateway.address)}
        return self.services.repro(self.address, *words, **{**place, **more})

    def run(self, machine: str, *words: str, **more: str) -> subprocess.Popen[str]:
        return self.start(machine, "run", f"{self.services.runs}:LONG", "--json", *words, **more)

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Its exit code, and the last line that it said."""
        _, said = process.communicate(timeout=TIMEOUT_SECONDS)
        assert "Traceback" not in said
        return process.returncode, said.strip().rpartition("\n")[2]

    def cache(self, machine: str) -> Path:
        return next((self.folder / machine).glob("*"), self.folder / "none")

    def objects(self, part: str = "") -> list[str]:
        listed = self.client.list_objects_v2(Bucket=self.bucket).get("Contents", ())
        return [each["Key"] for each in listed if part in each["Key"]]

    def read(self, name: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=self.bucket, Key=name)["Body"].read()
        return content


@pytest.fixture
def root(services: Services, radosgw: Cluster, tmp_path: Path) -> Root:
    return Root(services, radosgw, tmp_path)


def assert_same(root: Root, machine: str, undisturbed: Path, *stages: str) -> None:
    """Assert that what the machine made is what was made without a fault, and that these stages are among it."""
    made = artifact_digests(root.cache(machine))
    assert made.items() <= artifact_digests(undisturbed).items()
    assert {key.partition("/")[0] for key in made} >= {*stages}


def test_what_holds_of_a_mock_holds_here() -> None:
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-m", "not gpu and not network", "--s3", "radosgw"]
    done = subprocess.run([sys.executable, *words, *OF_BUCKETS], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_the_demo_is_made_once_for_two_machines(root: Root) -> None:
    made = wait_for_outcome(root.start("one", "run", "demo", "--json", REPRO_THREADS=""), 20 * TIMEOUT_SECONDS)
    assert made["model_version"].startswith("demo/")
    for machine, own in (("one", set()), ("other", {"register"})):  # MLflow on loopback belongs to one machine
        again = wait_for_outcome(root.start(machine, "run", "demo", "--json"))
        assert {row["stage"] for row in again["stages"] if row["state"] != "cached"} == own
    assert root.ended(root.start("other", "verify", "demo"))[0] == 0


def test_a_killed_training_resumes_on_another_machine(root: Root, undisturbed: Path) -> None:
    run = root.run("one", *TRAINED)
    wait_for(lambda: has_checkpoint(root.cache("one"), 40))
    for each in processes(root.address, "model.train"):
        each.send_signal(signal.SIGSTOP)  # until its checkpoint is in the bucket
    wait_for(lambda: any(b"checkpoints/0" in root.read(name) for name in root.objects("/index.json")))
    kill_tree(run.pid)
    for each in processes(root.address):
        each.kill()
    assert "resumes from what another machine sent" in wait_for_outcome(root.run("other", *TRAINED))["said"]
    assert_same(root, "other", undisturbed, "train", "average")
    assert not root.objects("/resume-")


@pytest.mark.parametrize("seconds", [20, 75])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_run_goes_on_after_the_server_was_away(
    root: Root, undisturbed: Path, number: signal.Signals, seconds: int
) -> None:
    """Its results are sent when the server is back."""
    run = root.run("one", *TRAINED)
    wait_for(lambda: has_checkpoint(root.cache("one"), 40))
    with root.gateway.gateway_away(number):
        time.sleep(seconds)
    wait_for_outcome(run)
    assert_same(root, "one", undisturbed, "train", "average")
    assert root.objects("/average/")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "another"}, "SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "InvalidAccessKeyId"),
        ({"REPRO_ROOT": "s3://nobodys-bucket/prefix"}, "there is no bucket 'nobodys-bucket'"),
    ],
)
def test_a_wrong_key_and_a_missing_bucket_are_one_sentence(root: Root, wrong: dict[str, str], said: str) -> None:
    for process in (root.run("one", *SHARDS, **wrong), root.start("one", "gc", **wrong)):
        code, sentence = root.ended(process)
        assert code == 2
        assert said in sentence
    assert not root.objects()


def test_a_user_who_may_only_read_reads_and_is_stopped_before_the_work(root: Root) -> None:
    wait_for_outcome(root.run("one", *SHARDS))
    root.gateway.add_user("reader", "reader", "reads-only")
    who = {"AWS": ["arn:aws:iam:::user/reader"]}
    what = [f"arn:aws:s3:::{root.bucket}{below}" for below in ("", "/*")]
    may = {"Effect": "Allow", "Principal": who, "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": what}
    root.client.put_bucket_policy(Bucket=root.bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [may]}))
    reader = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "reads-only"}
    run = ("run", f"{root.services.runs}:LONG", *SHARDS)
    for words in (run, ("verify",), ("gc",), ("history",), ("show", "--artifacts"), ("show", "small/clean", "--path")):
        assert root.ended(root.start("other", *words, **reader))[0] == 0, words
    before = root.objects()
    code, sentence = root.ended(root.run("other", *TRAINED, **reader))
    assert code == 1
    assert "cannot be written" in sentence
    assert root.objects() == before


def test_a_full_quota_is_one_sentence_and_its_end_is_enough(root: Root, undisturbed: Path) -> None:
    root.gateway.limit_objects(root.bucket, 3)
    code, sentence = root.ended(root.run("one", *SHARDS))
    assert code == 1
    assert "has no space left (QuotaExceeded)" in sentence
    root.gateway.limit_objects(root.bucket, -1)
    wait_for_outcome(root.run("one", *SHARDS))
    assert_same(root, "one", undisturbed, "shard")


def test_objects_that_others_overwrote_or_deleted_are_named_and_made_again(root: Root, undisturbed: Path) -> None:
    wait_for_outcome(root.run("one", *SHARDS))
    overwritten = next(name for name in root.objects("/clean/") if "manifest" not in name)
    root.client.put_object(Bucket=root.bucket, Key=overwritten, Body=root.read(overwritten)[:-1] + b"?")
    deleted = next(name for name in root.objects("/shard/") if "manifest" not in name)
    root.client.delete_object(Bucket=root.bucket, Key=deleted)
    code, sentence = root.ended(root.start("other", "verify"))
    assert code == 1
    assert sentence.startswith("repro: 2 of ")
    again = wait_for_outcome(root.run("other", *SHARDS))
    assert {row["stage"] for row in again["stages"] if row["state"] == "completed"} == {"clean", "shard"}
    assert_same(root, "other", undisturbed, "clean", "shard")
    for words in (("gc", "--delete"), ("verify",)):
        assert root.ended(root.start("one", *words))[0] == 0, words
    whole = wait_for_outcome(root.run("third", *SHARDS))
    assert {row["state"] for row in whole["stages"]} == {"cached"}
