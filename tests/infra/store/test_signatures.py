"""An envelope verifies with the key that signed it, as openssl sees it too, and with no change to a byte."""

import base64
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from sealing import manifest_of, sealed
from signing_keys import key_pair

from infra.errors import BadConfiguration
from infra.store.local import Store
from infra.store.manifest import Manifest
from infra.store.signatures import Keys, Untrusted, read_public_keys, verified_statement
from infra.store.statement import statement_of


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    sealed(Store(tmp_path / "root"))
    return manifest_of(Store(tmp_path / "root"))


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_a_signed_statement_is_what_was_signed(tmp_path: Path, manifest: Manifest, curve: ec.EllipticCurve) -> None:
    private, public = key_pair(tmp_path, "ours", curve)
    envelope = Keys.read(f"{private}", f"{public}").signature(manifest)
    assert envelope
    statement = verified_statement(json.loads(json.dumps(envelope)), read_public_keys(public))
    assert statement == json.loads(json.dumps(statement_of(manifest)))


def test_openssl_verifies_the_signature_over_dsses_encoding(tmp_path: Path, manifest: Manifest) -> None:
    private, public = key_pair(tmp_path, "ours")
    envelope = Keys.read(f"{private}", "").signature(manifest)
    assert envelope
    payload = base64.b64decode(envelope["payload"])
    signed, signature = tmp_path / "signed", tmp_path / "signature"
    signed.write_bytes(b"DSSEv1 28 application/vnd.in-toto+json %d " % len(payload) + payload)
    signature.write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    command = ["openssl", "dgst", "-sha256", "-verify", f"{public}", "-signature", f"{signature}", f"{signed}"]
    assert "Verified OK" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_what_is_not_signed_by_a_trusted_key_is_refused_with_the_reason(tmp_path: Path, manifest: Manifest) -> None:
    (ours, _), (theirs, _) = key_pair(tmp_path, "ours"), key_pair(tmp_path / "theirs", "theirs")
    keys = Keys.read(f"{ours}", f"{tmp_path}")
    good = keys.signature(manifest)
    assert good
    assert keys.refusal(manifest, good) == ""
    assert keys.refusal(manifest, None) == "unsigned"
    assert keys.refusal(manifest, Keys.read(f"{theirs}", "").signature(manifest)) == "signed by an unknown key"
    other = replace(manifest, facts={"pairs": 4})
    assert keys.refusal(other, good) == "its signature is of another manifest"
    altered = json.loads(base64.b64decode(good["payload"])) | {"subject": []}
    forged = {**good, "payload": base64.b64encode(json.dumps(altered).encode()).decode()}
    assert keys.refusal(manifest, forged) == "its signature is wrong"
    assert Keys().refusal(manifest, None) == "", "without REPRO_TRUST everything is trusted"


@pytest.mark.parametrize(
    "envelope",
    ["", 3, [], {}, {"payloadType": "text/plain"}, {"payloadType": "application/vnd.in-toto+json", "payload": "§"}],
)
def test_an_unreadable_envelope_is_refused(tmp_path: Path, envelope: object) -> None:
    _, public = key_pair(tmp_path, "ours")
    with pytest.raises(Untrusted, match="its signature"):
        verified_statement(envelope, read_public_keys(public))


def test_a_wrong_key_is_one_sentence_that_names_the_file(tmp_path: Path) -> None:
    private, public = key_pair(tmp_path / "keys", "ours")
    _, foreign = key_pair(tmp_path / "foreign", "theirs")
    _, koblitz = key_pair(tmp_path / "other", "koblitz", ec.SECP256K1())
    (tmp_path / "empty").mkdir()
    for sign_key, trust, message in (
        (f"{tmp_path}/none", "", "the private key .*/none cannot be read"),
        (f"{public}", "", r"ours.pem holds no private key"),
        ("", f"{private}", r"ours.key holds no public key"),
        ("", f"{koblitz}", "a key of another kind, allowed is .* P-256"),
        ("", f"{tmp_path}/empty", r"holds no \*.pem file"),
        (f"{private}", f"{foreign}", "does not hold its public key"),
    ):
        with pytest.raises(BadConfiguration, match=message):
            Keys.read(sign_key, trust)


def test_a_key_with_a_password_signs_with_it_alone(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = key_pair(tmp_path, "ours", password="right")
    monkeypatch.setattr("infra.store.signatures.getpass", lambda _: pytest.fail("there is no terminal"))
    with pytest.raises(BadConfiguration, match="ours.key has a password: set REPRO_SIGN_KEY_PASSWORD, or run on a ter"):
        Keys.read(f"{private}", "")
    monkeypatch.setenv("REPRO_SIGN_KEY_PASSWORD", "wrong")
    with pytest.raises(BadConfiguration, match="the password of the private key .*ours.key is wrong") as refused:
        Keys.read(f"{private}", "")
    assert "'wrong'" not in f"{refused.value}", "a message shows no password"
    monkeypatch.setenv("REPRO_SIGN_KEY_PASSWORD", "right")
    keys = Keys.read(f"{private}", f"{public}")
    assert keys.refusal(manifest, keys.signature(manifest)) == ""
    monkeypatch.setenv("REPRO_SIGN_KEY_PASSWORD", "not needed")
    Keys.read(f"{key_pair(tmp_path, 'plain')[0]}", "")


def test_a_terminal_is_asked_once_for_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, _ = key_pair(tmp_path, "ours", password="right")
    asked: list[str] = []
    monkeypatch.delenv("REPRO_SIGN_KEY_PASSWORD", raising=False)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("infra.store.signatures.getpass", lambda prompt: asked.append(prompt) or "right")
    for _ in range(2):
        Keys.read(f"{private}", "")
    assert asked == [f"password of {private}: "]
