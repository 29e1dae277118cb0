"""What a foreign writer puts into a shared bucket is never used where REPRO_TRUST names the keys that count."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from s3_server import Server
from sealing import DESCRIPTION, FILES, manifest_of, sealed
from signing_keys import key_pair

from infra.errors import BadConfiguration, BadData
from infra.site import Site, open_store
from infra.store.local import Store
from infra.store.manifest import MANIFEST, content_digest, manifest_envelope
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket
from infra.store.signatures import Keys

Machine = Callable[..., S3Store]


@pytest.fixture
def machine(s3: Server, tmp_path: Path) -> Machine:
    """Makes a machine: it signs as "us", as "thief" or not at all, and trusts the key of "us" alone or everything."""
    made = {name: key_pair(tmp_path / "keys" / name, name) for name in ("us", "thief")}

    def machine(name: str, signs_as: str = "us", trusts: bool = True) -> S3Store:
        sign_key = f"{made[signs_as][0]}" if signs_as else ""
        keys = Keys.read(sign_key, f"{made['us'][1].parent}" if trusts else "")
        return S3Store(tmp_path / name, Bucket(f"s3://{s3.bucket}/store"), 10**9, keys)

    return machine


def objects(store: S3Store) -> dict[str, str]:
    return {name.rpartition("/")[2]: name for name in store.bucket.list("")}


def forge(store: S3Store, keys: Keys, **changes: Any) -> None:
    """Replace a.txt in the bucket, and the manifest by one that says exactly that; all sums of it are right."""
    foreign = FILES | {"a.txt": b"alphA"}
    theirs = Store(store.root.parent / "scratch", keys)
    sealed(theirs, files=foreign)
    made = manifest_of(theirs)
    old = json.loads(store.bucket.read(f"clean/k1/{MANIFEST}"))
    name = objects(store)["a.txt"]
    store.bucket.put(name, foreign["a.txt"])
    etags = {**old["etags"], "a.txt": store.bucket.list("")[name].etag}
    envelope = manifest_envelope(made, keys.signature(made)) | {"id": old["id"], "etags": etags} | changes
    store.bucket.put(f"clean/k1/{MANIFEST}", json.dumps(envelope).encode())


def test_a_signed_artifact_is_used_by_another_machine_that_trusts_its_key(machine: Machine) -> None:
    sealed(machine("here"))
    there = machine("there", signs_as="")
    artifact = there.artifact(manifest_of(there))
    assert (artifact.path() / "a.txt").read_bytes() == b"alpha"
    envelope = there.local().envelope("clean", "k1")
    assert envelope
    assert there.keys.refusal(envelope[0], envelope[1]["signature"]) == "", "a copy keeps the signature"


def test_a_manifest_that_matches_other_bytes_is_refused(machine: Machine) -> None:
    """Without trust the forgery is taken: every sum is right."""
    ours = machine("here")
    artifact = sealed(ours)
    signature = json.loads(ours.bucket.read(f"clean/k1/{MANIFEST}"))["signature"]
    forge(ours, Keys())
    credulous = machine("credulous", trusts=False)
    assert (credulous.artifact(manifest_of(credulous)).path() / "a.txt").read_bytes() == b"alphA"
    thief = machine("thief", signs_as="thief", trusts=False).keys
    for keys, changes, why in (
        (Keys(), {}, "unsigned"),
        (thief, {}, "signed by an unknown key"),
        (Keys(), {"signature": signature}, "its signature is of another manifest"),
        (Keys(), {"signature": "§"}, "its signature cannot be read"),
    ):
        forge(ours, keys, **changes)
        there = machine("there")
        assert there.manifest("clean", "k1") is None
        assert there.refusal("clean", "k1") == why
        with pytest.raises(BadData, match="removed or replaced"):
            there.artifact(manifest_of(credulous)).path()
    assert (artifact.path() / "a.txt").read_bytes() == b"alpha", "the copy of the machine that made it stays"


def test_other_bytes_under_a_right_manifest_are_refused(s3: Server, machine: Machine) -> None:
    """The ETags beside a manifest are not signed, so the writer can make them match; the sums cannot."""
    sealed(machine("here"))
    ours = machine("here")
    envelope = json.loads(ours.bucket.read(f"clean/k1/{MANIFEST}"))
    name = objects(ours)["a.txt"]
    ours.bucket.put(name, b"alphA")
    there = machine("there")
    assert there.damage(manifest_of(there)) == "a.txt was altered"
    envelope["etags"]["a.txt"] = ours.bucket.list("")[name].etag
    ours.bucket.put(f"clean/k1/{MANIFEST}", json.dumps(envelope).encode())
    there = machine("elsewhere")
    assert there.damage(manifest_of(there)) == "", "by its ETag it is the same"
    with pytest.raises(BadData, match=r"a.txt does not match its sum: .* quarantined"):
        there.artifact(manifest_of(there)).path()


def test_a_claimed_content_digest_must_be_that_of_the_files(machine: Machine) -> None:
    """A stage is a hit by the content digests of its inputs, so a manifest may not claim another's."""
    ours = machine("here")
    sealed(ours)
    content = manifest_of(ours).content
    made = replace(manifest_of(ours), files={"a.txt": {"sha256": "0" * 64, "bytes": 5}})
    assert content_digest(made.files) != content
    ours.bucket.put(f"clean/k1/{MANIFEST}", json.dumps(manifest_envelope(made, ours.keys.signature(made))).encode())
    assert machine("there").manifest("clean", "k1") is None


def test_a_refused_artifact_is_made_again_and_replaced(machine: Machine) -> None:
    ours = machine("here")
    forge_target = machine("victim", signs_as="", trusts=False)
    sealed(forge_target, files={"a.txt": b"foreign"})
    assert ours.refusal("clean", "k1") == "unsigned"
    assert not ours.restore("clean", "k1")
    sealed(ours)
    there = machine("there")
    assert (there.artifact(manifest_of(there)).path() / "a.txt").read_bytes() == b"alpha"
    assert "foreign" not in {there.bucket.read(name).decode(errors="replace") for name in there.bucket.list("")}


def test_a_copy_without_a_signature_is_not_sent_in_the_name_of_this_machine(machine: Machine) -> None:
    """Else whoever deletes a manifest has the copies of unsigned artifacts signed."""
    unsigned = machine("here", signs_as="", trusts=False)
    sealed(unsigned)
    unsigned.bucket.delete([f"clean/k1/{MANIFEST}"])
    ours = machine("here")
    assert ours.local().manifest("clean", "k1"), "the copy is there"
    assert not ours.restore("clean", "k1")
    assert ours.manifest("clean", "k1") is None


def test_an_unsigned_twin_that_was_first_ends_the_stage_with_a_reason(machine: Machine) -> None:
    ours, foreign = machine("here"), machine("foreign", signs_as="", trusts=False)
    partial = ours.partial("clean", "k1", {})
    (partial / "a.txt").write_bytes(b"ours")
    sealed(foreign)
    with pytest.raises(BadData, match="replaced while it was sent, and what is there now is unsigned; run again"):
        ours.seal(partial, DESCRIPTION)


def begun(store: S3Store) -> Path:
    """A training of this machine, resumed from the bucket if it may."""
    return store.partial("train", "k1", {"": "k1"})


def send(store: S3Store, content: bytes) -> None:
    partial = begun(store)
    (partial / "checkpoint").write_bytes(content)
    store._snapshots[partial]._send(store._snapshots[partial]._scan())


def test_a_training_resumes_only_from_checkpoints_that_a_trusted_key_signed(machine: Machine) -> None:
    foreign = machine("foreign", signs_as="", trusts=False)
    send(foreign, b"foreign")
    assert (begun(machine("credulous", trusts=False)) / "checkpoint").exists()
    ours, said = machine("here"), list[str]()
    ours.say = said.append
    assert not list(begun(ours).iterdir())
    assert said[0].startswith("train k1: the snapshot at s3://")
    assert said[0].endswith("is not used: unsigned")
    send(ours, b"ours")
    assert (begun(machine("there")) / "checkpoint").read_bytes() == b"ours"
    indexes = [name for name in ours.bucket.list("") if name.endswith("index.json")]
    (index,) = [name for name in indexes if b"signature" in ours.bucket.read(name)]
    content = json.loads(ours.bucket.read(index))
    place, stranger = index.rpartition("/")[0], hashlib.sha256(b"foreign").hexdigest()
    ours.bucket.put(f"{place}/{stranger}", b"foreign")
    ours.bucket.put(index, json.dumps({**content, "files": {"checkpoint": stranger}}).encode())
    assert not list(begun(machine("third")).iterdir()), "a signature counts for its own files alone"


def test_no_work_begins_whose_result_would_be_refused(machine: Machine) -> None:
    with pytest.raises(BadConfiguration, match="REPRO_TRUST is set and REPRO_SIGN_KEY is not"):
        machine("here", signs_as="").partial("clean", "k1", {})


def test_the_environment_names_the_keys(s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = key_pair(tmp_path / "keys", "us")
    for name, value in {
        "REPRO_ROOT": f"s3://{s3.bucket}/store",
        "REPRO_CACHE": f"{tmp_path / 'cache'}",
        "REPRO_TRUST": f"{public}",
        "REPRO_SIGN_KEY": f"{private}",
    }.items():
        monkeypatch.setenv(name, value)
    store = open_store(Site.named())
    sealed(store)
    assert store.manifest("clean", "k1")
    _, other = key_pair(tmp_path / "others", "other")
    monkeypatch.setenv("REPRO_TRUST", f"{other.parent}")
    monkeypatch.setenv("REPRO_SIGN_KEY", "")
    elsewhere = open_store(Site.named())
    assert elsewhere.manifest("clean", "k1") is None
    assert elsewhere.refusal("clean", "k1") == "signed by an unknown key"


def test_a_store_on_a_disk_signs_and_its_unsigned_manifests_stay_as_they_were(tmp_path: Path) -> None:
    private, _ = key_pair(tmp_path / "keys", "us")
    sealed(Store(tmp_path / "plain"))
    text = (tmp_path / "plain" / "clean" / "k1" / MANIFEST).read_text()
    assert text == json.dumps(manifest_envelope(manifest_of(Store(tmp_path / "plain"))), indent=1, ensure_ascii=False)
    keys = Keys.read(f"{private}", "")
    sealed(Store(tmp_path / "signed", keys))
    envelope = Store(tmp_path / "signed").envelope("clean", "k1")
    assert envelope
    assert envelope[1]["signature"]["signatures"]
    assert "signature" not in json.loads(text)
