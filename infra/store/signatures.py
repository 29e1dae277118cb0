"""Signatures of manifests: in-toto statements in DSSE envelopes, by elliptic keys in PEM files, without any network.

The package ``model-signing`` is not used: it signs the files of a folder with a predicate of its own, so it can carry
neither provenance nor an artifact that is only in a bucket, and it brings fifteen packages for services.
"""

import base64
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.errors import BadConfiguration
from infra.store.manifest import Manifest, digest_of
from infra.store.statement import manifest_sum, statement_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

PASSWORD_VARIABLE = "REPRO_SIGN_KEY_PASSWORD"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
CURVES = ("secp256r1", "secp384r1", "secp521r1")
"""Allowed curves: NIST's P-256, P-384 and P-521, signed with SHA-256, SHA-384 and SHA-512."""
PublicKeys = Mapping[str, "EllipticCurvePublicKey"]
"""Public keys by their id: the sha256 of the DER form."""


class Untrusted(Exception):
    """An envelope that no trusted key signed; the message says why."""


@dataclass(frozen=True)
class Keys:
    """The keys that this process signs with and that it trusts; by default it signs nothing and trusts everything."""

    signer: "EllipticCurvePrivateKey | None" = None
    trusted: PublicKeys | None = None

    @staticmethod
    def read(sign_key: str, trust: str) -> "Keys":
        """The keys in the file ``sign_key`` and the file or folder ``trust``; "" for none.

        Raises BadConfiguration for a file that is no such key, and for a signer that would not be trusted.
        """
        signer = read_private_key(Path(sign_key)) if sign_key else None
        trusted = read_public_keys(Path(trust)) if trust else None
        if signer and trusted is not None and key_id(signer.public_key()) not in trusted:
            raise BadConfiguration(
                f"REPRO_SIGN_KEY is {sign_key!r}, but REPRO_TRUST ({trust}) does not hold its public key, so what it"
                " signs would be made again for ever: add the public key to REPRO_TRUST"
            )
        return Keys(signer, trusted)

    def signature(self, manifest: Manifest) -> dict[str, Any] | None:
        """The signed statement about a manifest; None without a signer."""
        return sign(statement_of(manifest), self.signer) if self.signer else None

    def refusal(self, manifest: Manifest, signature: object) -> str:
        """Why the manifest with this signature is not trusted; "" if it is, or if everything is."""
        if self.trusted is None:
            return ""
        try:
            statement = verified_statement(signature, self.trusted)
        except Untrusted as untrusted:
            return f"{untrusted}"
        is_its_own = manifest_sum(statement) == digest_of(vars(manifest))
        return "" if is_its_own else "its signature is of another manifest"

    def check_signer(self) -> None:
        """Raise BadConfiguration where an artifact would be made that the next run refuses."""
        if self.trusted is not None and self.signer is None:
            raise BadConfiguration(
                "REPRO_TRUST is set and REPRO_SIGN_KEY is not, so what this run makes would be refused by the next one:"
                " set REPRO_SIGN_KEY to a private key whose public key REPRO_TRUST holds"
            )


NO_KEYS = Keys()


def sign(statement: Mapping[str, Any], key: "EllipticCurvePrivateKey") -> dict[str, Any]:
    """The statement in a DSSE envelope."""
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

    payload = json.dumps(statement, sort_keys=True).encode()
    signature = key.sign(_signed_bytes(payload), ECDSA(_hash_of(key.curve.key_size)))
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": key_id(key.public_key()), "sig": base64.b64encode(signature).decode()}],
    }


def verified_statement(envelope: object, keys: PublicKeys) -> dict[str, Any]:
    """The statement in an envelope that one of the keys signed. Raises Untrusted."""
    if envelope is None:
        raise Untrusted("unsigned")
    parsed = _parse(envelope)
    for signature in parsed.signatures.values():
        if any(_is_valid(key, signature, parsed.payload) for key in keys.values()):
            return parsed.statement
    raise Untrusted("its signature is wrong" if set(parsed.signatures) & set(keys) else "signed by an unknown key")


@dataclass(frozen=True)
class _Envelope:
    payload: bytes
    statement: dict[str, Any]
    signatures: Mapping[str, bytes] = field(default_factory=dict)


def _parse(envelope: Any) -> _Envelope:
    """The parts of an envelope; nothing in them is verified yet. Raises Untrusted."""
    try:
        if envelope["payloadType"] != PAYLOAD_TYPE:
            raise Untrusted(f"its signature is not of an in-toto statement but of {envelope['payloadType']!r}")
        payload = base64.b64decode(envelope["payload"], validate=True)
        signatures = {f"{each['keyid']}": base64.b64decode(each["sig"]) for each in envelope["signatures"]}
        statement = json.loads(payload)
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        raise Untrusted("its signature cannot be read") from error
    if not isinstance(statement, dict):
        raise Untrusted("its signature cannot be read")
    return _Envelope(payload, statement, signatures)


def _is_valid(key: "EllipticCurvePublicKey", signature: bytes, payload: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

    try:
        key.verify(signature, _signed_bytes(payload), ECDSA(_hash_of(key.curve.key_size)))
    except InvalidSignature:
        return False
    return True


def _signed_bytes(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: type and payload, each after its length."""
    return f"DSSEv1 {len(PAYLOAD_TYPE)} {PAYLOAD_TYPE} {len(payload)} ".encode() + payload


def _hash_of(bits: int) -> Any:
    from cryptography.hazmat.primitives import hashes

    return {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}[bits]


def key_id(key: "EllipticCurvePublicKey") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def read_private_key(path: Path) -> "EllipticCurvePrivateKey":
    """The key in a PEM file. Raises BadConfiguration, also for a password that is missing or wrong."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    def load(text: bytes) -> Any:
        try:
            return load_pem_private_key(text, password=None)
        except TypeError:  # it has a password
            password = _password(path)
        try:
            return load_pem_private_key(text, password.encode())
        except ValueError as error:
            raise BadConfiguration(
                f"the password of the private key {path} is wrong: correct {PASSWORD_VARIABLE}, or unset it to be asked"
            ) from error

    key: Any = _read(path, load, "private")
    return key  # type: ignore[no-any-return]


def _password(path: Path) -> str:
    """The password of a private key, from the environment or a terminal. Raises BadConfiguration without either."""
    if password := os.environ.get(PASSWORD_VARIABLE):
        return password
    if not (sys.stdin and sys.stdin.isatty()):
        raise BadConfiguration(f"the private key {path} has a password: set {PASSWORD_VARIABLE}, or run on a terminal")
    return _ask_password(path)


@cache
def _ask_password(path: Path) -> str:
    """Ask once per process, since each store that is opened reads the key."""
    return getpass(f"password of {path}: ")


def read_public_keys(path: Path) -> PublicKeys:
    """The keys in a PEM file, or in the ``*.pem`` files of a folder. Raises BadConfiguration."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
    if not files:
        raise BadConfiguration(f"the folder of public keys {path} holds no *.pem file: put one into it")
    keys = (_read(file, load_pem_public_key, "public") for file in files)
    return {key_id(key): key for key in keys}


def _read(path: Path, load: Any, kind: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    allowed = f"a PEM file with a {kind} key on P-256, P-384 or P-521"
    try:
        key = load(path.read_bytes())
    except OSError as error:
        raise BadConfiguration(
            f"the {kind} key {path} cannot be read ({error.strerror}), allowed is {allowed}"
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadConfiguration(f"{path} holds no {kind} key that can be used, allowed is {allowed}") from error
    if getattr(getattr(key, "curve", None), "name", "") not in CURVES:
        raise BadConfiguration(f"{path} holds a key of another kind, allowed is {allowed}")
    return key
