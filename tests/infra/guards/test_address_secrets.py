"""No user, password or signed query of an address survives where it is stored or shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.guards.address_secrets import public_address, public_facts, public_text

WORDS = st.text("abcXYZ019-_.~%:@!$&'()*+,;=", min_size=6, max_size=20).filter(lambda text: text.strip("%*.:@"))
SECRET = "planted-SECRET-1"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("/data/mirror", "/data/mirror"),
        ("sqlite:////tmp/mlflow.db?timeout=60", "sqlite:////tmp/mlflow.db?timeout=60"),
        ("embedded:demo/train.en", "embedded:demo/train.en"),
        ("https://host/a.gz", "https://host/a.gz"),
        ("hf://datasets/owner/name@1234/a.parquet", "hf://datasets/owner/name@1234/a.parquet"),
        ("http://[::1]:80/a", "http://[::1]:80/a"),
        (f"https://{SECRET}@host:8443/a", "https://***@host:8443/a"),
        (f"https://user:{SECRET}@host/a@b", "https://***@host/a@b"),
        (
            f"s3://bucket/a?X-Amz-Signature={SECRET}&X-Amz-Expires=60#{SECRET}",
            "s3://bucket/a?X-Amz-Signature=***&X-Amz-Expires=***",
        ),
        (f"zip://a.txt::https://user:{SECRET}@host/a.zip?sig={SECRET}", "zip://a.txt::https://***@host/a.zip?sig=***"),
    ],
)
def test_secrets_go_and_the_rest_stays(address: str, public: str) -> None:
    assert public_address(address) == public
    assert public_address(public) == public, "an address that is public stays as it is"
    assert public_text(f"No answer: {address} (status 403); x") == f"No answer: {public} (status 403); x"


@given(WORDS, WORDS)
def test_no_secret_survives_in_a_text_that_quotes_parts_of_its_address(password: str, token: str) -> None:
    password, token = f"{SECRET}{password}", f"{SECRET}{token}"
    address = f"https://user:{password}@host/file?sig={token.replace('&', '')}"
    for text in (address, f"'{address}'", f"nonnumeric port: '{password}@host'", f"user:{password} is refused"):
        assert SECRET not in public_text(text, address)
    assert SECRET not in public_address(address)


def test_facts_of_old_manifests_lose_secrets_and_nothing_else() -> None:
    facts = {"origin": f"https://h/a?sig={SECRET}", "bytes": 3, "rejected_by": {"Length": 1}, "note": "a :// b"}
    assert public_facts(facts) == facts | {"origin": "https://h/a?sig=***"}
