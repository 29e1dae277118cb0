"""Pairs of keys in PEM files, for tests of signatures."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def key_pair(folder: Path, name: str, curve: ec.EllipticCurve | None = None, password: str = "") -> tuple[Path, Path]:
    """A private and a public key, as ``NAME.key`` and ``NAME.pem``; the private one encrypted if it has a password."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(curve or ec.SECP256R1())
    private, public = folder / f"{name}.key", folder / f"{name}.pem"
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public
