"""Makes an address fit to be stored or shown: without user and password, and without the values of its query.

A token stands as a user (``https://TOKEN@host``), a password, or a parameter of any name (``sig``, ``token``).
Nothing that is needed goes with them: what an address gave is identified by its checksum. A secret that is part of the
path of an address cannot be recognised.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST_TOKEN = 6
"""A shorter value of a query is part of other words too often."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"]+")
_PARTS = re.compile(r"(?P<scheme>[^:]*)://(?P<place>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#.*)?", re.DOTALL)
_NESTED = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*://)")
"""Between the addresses of fsspec's chains, as in ``zip://a.txt::https://host/a.zip``."""
_END = re.compile(r"[)\]}>,;.:'`]+$")


def public_address(address: str) -> str:
    """``https://***@host/path?sig=***`` for an address with secrets; a path and an address of a file are unchanged."""
    return "::".join(map(_without_secrets, _NESTED.split(address)))


def public_text(text: str, *addresses: str) -> str:
    """``text`` with each address in it made public, and without the secrets of ``addresses``.

    Libraries quote parts of an address in their errors.
    """
    if "://" in text:
        text = _ADDRESS.sub(lambda match: _in_text(match[0]), text)
    for secret in sorted({secret for each in addresses for secret in _secrets(each)}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def public_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a stage with every address in them made public: old manifests hold some as they were used."""
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
