"""Removes secrets from an address before it is stored or shown: user, password, and the values of its query.

A token can be the user (``https://TOKEN@host``), the password, or a parameter of any name (``sig``, ``token``).
No needed information is lost, because a checksum identifies each downloaded file. A secret in the path of an address
cannot be recognised.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST_TOKEN = 6
"""The least number of characters of a secret query value. Shorter values often occur in other words."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"]+")
_PARTS = re.compile(r"(?P<scheme>[^:]*)://(?P<place>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#.*)?", re.DOTALL)
_NESTED = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*://)")
"""Separates the addresses of an fsspec chain, as in ``zip://a.txt::https://host/a.zip``."""
_END = re.compile(r"[)\]}>,;.:'`]+$")


def public_address(address: str) -> str:
    """Return ``https://***@host/path?sig=***`` for an address with secrets; leave paths and ``file://`` unchanged."""
    return "::".join(map(_without_secrets, _NESTED.split(address)))


def public_text(text: str, *addresses: str) -> str:
    """Return ``text`` with every address made public, and without the secrets of ``addresses``.

    Secrets are also removed alone, because libraries quote parts of an address in their errors.
    """
    if "://" in text:
        text = _ADDRESS.sub(lambda match: _in_text(match[0]), text)
    for secret in sorted({secret for each in addresses for secret in _secrets(each)}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def public_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stage's facts with every address made public. Old manifests contain addresses with secrets."""
    return {
        name: public_address(each) if isinstance(each, str) and "://" in each else each for name, each in facts.items()
    }


def _in_text(found: str) -> str:
    end = match[0] if (match := _END.search(found)) else ""
    return public_address(found.removesuffix(end)) + end


def _without_secrets(address: str) -> str:
    parts = _PARTS.fullmatch(address)
    if not parts or not parts["place"]:  # sqlite:///mlflow.db and file:///tmp name files of this machine
        return address
    user, at, host = parts["place"].rpartition("@")
    names = [each.partition("=")[0] for each in (parts["query"] or "").split("&") if each]
    query = f"?{'&'.join(f'{name}={HIDDEN}' for name in names)}" if names else ""
    return f"{parts['scheme']}://{HIDDEN if user else ''}{at}{host}{parts['path']}{query}"


def _secrets(address: str) -> Iterator[str]:
    for each in _NESTED.split(address):
        parts = _PARTS.fullmatch(each)
        if not parts or not parts["place"]:
            continue
        user = parts["place"].rpartition("@")[0]
        name, _, password = user.partition(":")
        tokens = [name] * (not password) + [value.partition("=")[2] for value in (parts["query"] or "").split("&")]
        for secret in (user, password, *(token for token in tokens if len(token) >= SHORTEST_TOKEN)):
            yield from filter(None, (secret, unquote(secret)))
