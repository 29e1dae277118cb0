"""Tests of the API over a fake model: complete and ordered responses, errors in one sentence, hostile input."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from patience import wait_for
from web_fake import HOSTILE, Fake, Site, ask, error_of, served

from flows.web.limits import Limits

TEXT = "One dog. Two dogs.\n\nA cat."


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served([Fake(), Fake(name="fake/2", aliases=()), Fake(name="other/7", answer=lambda _: HOSTILE[0])]) as site:
        yield site


def test_paragraphs_are_preserved(site: Site) -> None:
    answer = ask(site, text=TEXT, nbest=2).json()
    assert [[each["source"] for each in paragraph] for paragraph in answer["paragraphs"]] == [
        ["One dog.", "Two dogs."],
        [],
        ["A cat."],
    ]
    assert answer["text"] == "ONE DOG. TWO DOGS.\n\nA CAT."
    assert {len(each["hypotheses"]) for paragraph in answer["paragraphs"] for each in paragraph} == {2}
    beyond = ask(site, text="a", beam=2, nbest=3).json()["paragraphs"][0][0]["hypotheses"]
    assert len(beyond) == 3, "as repro translate, which gives all that finish"
    assert answer["search"] == {"beam": 4, "alpha": 0.6}
    assert ask(site, text="").json()["text"] == ""


def test_a_stream_has_the_same_sentences_as_the_whole_answer(site: Site) -> None:
    whole = ask(site, text=TEXT).json()
    lines = [json.loads(line) for line in ask(site, "/api/translate/stream", text=TEXT).text.splitlines()]
    assert lines[0]["paragraphs"] == [["One dog.", "Two dogs."], [], ["A cat."]]
    assert lines[-1]["done"] is True
    found = {(each["paragraph"], each["sentence"]): each["translated"] for each in lines[1:-1]}
    assert found == {(p, s): each for p, row in enumerate(whole["paragraphs"]) for s, each in enumerate(row)}


def test_the_stream_sends_sentences_before_the_text_is_done() -> None:
    fake = Fake()
    with served([fake]) as site:
        body = {"text": "a. b. c. d."}
        with httpx.stream("POST", f"{site.url}/api/translate/stream", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            assert "paragraphs" in json.loads(next(lines))
            fake.gate.clear()
            first = json.loads(next(lines)) if fake.batches else None
            fake.gate.set()
            rest = [json.loads(line) for line in lines]
    assert [len(sentences) for sentences, _, _ in fake.batches] == [1, 2, 1]
    assert (first or rest[0])["sentence"] == 0


def test_a_version_has_its_name_and_aliases_and_unknown_names_are_never_used_as_paths(site: Site) -> None:
    for name in ("", "fake", "fake/1", "fake@champion"):
        assert ask(site, text="a", model=name).json()["model"] == "fake/1"
    for name in ("fake/3", "fake@nobody", "../fake/1", "file:///etc/passwd", "fake/1\x00", "fake%2f1"):
        for path, words in (("/api/translate", {"text": "a"}), ("/api/attention", {"source": "a"})):
            answer = ask(site, path, model=name, **words)
            assert answer.status_code == 404
            assert error_of(answer) == "no such model is served, allowed are fake/1, fake/2, other/7"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("the text", {"text": "x" * 10_001}),
        ("201 sentences", {"text": "a. " * 201}),
        ("line 2", {"text": "a.\n" + "b " * 31}),
        ("beam", {"beam": 17}),
        ("beam", {"beam": 0}),
        ("beam", {"beam": "wide"}),
        ("alpha", {"alpha": -1}),
        ("nbest", {"nbest": 8}),
        ("text", {"text": 7}),
        ("txt", {"txt": "a"}),
    ],
)
def test_an_invalid_request_gets_one_sentence_with_its_field(site: Site, field: str, values: dict[str, Any]) -> None:
    for path in ("/api/translate", "/api/translate/stream"):
        answer = ask(site, path, **{"text": "a"} | values)
        assert answer.status_code == 422
        assert field in error_of(answer)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 60_000, b"\xff\xfe", b'{"text": "a", "alpha": NaN}', b"null", b'"a"']
)
def test_a_malformed_body_is_refused_and_harms_no_later_request(site: Site, body: bytes) -> None:
    answer = httpx.post(f"{site.url}/api/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert error_of(answer)
    assert ask(site, text="a").json()["text"] == "A"


def test_half_a_surrogate_pair_becomes_the_replacement_character(site: Site) -> None:
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{site.url}/api/translate", content=b'{"text": "a \\ud800 b"}', headers=headers)
    assert answer.json()["text"] == "A \ufffd B"
    attention = httpx.post(f"{site.url}/api/attention", content=b'{"source": "\\udfff"}', headers=headers)
    assert attention.json()["columns"] == ["\ufffd", "</s>"]


def test_a_body_is_bounded_by_its_declared_and_its_real_length(site: Site) -> None:
    limit = Limits().body_bytes
    answer = ask(site, text="x" * limit)
    assert (answer.status_code, error_of(answer)) == (
        413,
        f"the request's body is larger than the {limit:,} bytes that are allowed",
    )

    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b"x" * 65_536

    try:
        chunked = httpx.post(f"{site.url}/api/translate", content=endless(), timeout=60).status_code
    except httpx.HTTPError:
        chunked = 413  # the server closed the connection during the upload
    assert chunked == 413
    assert ask(site, text="a").json()["text"] == "A"


def test_the_api_describes_itself(site: Site) -> None:
    described = httpx.get(f"{site.url}/openapi.json").json()
    assert set(described["paths"]) == {
        "/healthz",
        "/api/models",
        "/api/translate",
        "/api/translate/stream",
        "/api/attention",
    }
    assert "docs.js" in httpx.get(f"{site.url}/docs").text
    assert httpx.get(f"{site.url}/healthz").json() == {
        "status": "ready",
        "models": ["fake/1", "fake/2", "other/7"],
        "waiting": 0,
    }
    cards = httpx.get(f"{site.url}/api/models").json()
    assert cards[0] | {"limits": {}} == {
        "name": "fake/1",
        "aliases": ["champion"],
        "remark": "first of its name",
        "source_language": "en",
        "target_language": "de",
        "beam": 4,
        "alpha": 0.6,
        "engine": "fake",
        "limits": {},
    }
    assert cards[0]["limits"]["pieces"] == 30
    assert cards[0]["limits"]["nbest"] == 31, "twice the largest beam, less 1"


def test_attention_of_a_given_or_the_models_translation(site: Site) -> None:
    own = ask(site, "/api/attention", source="a dog").json()
    assert (own["rows"], own["columns"]) == (["4", "5", "</s>"], ["a", "dog", "</s>"])
    given = ask(site, "/api/attention", source="a dog", target="ein Hund da", kind="cross").json()
    assert given["rows"] == ["ein", "Hund", "da", "</s>"]
    assert [len(given["weights"]), len(given["weights"][0])] == [2, 3]
    for words, said in (
        ({"source": ""}, "source is empty"),
        ({"source": "a " * 31}, "source has 31 pieces, allowed are 30"),
        ({"source": "a", "target": "b " * 31}, "target has 31 pieces, allowed are 30"),
        ({"source": "a", "ids": [5] * 31}, "ids has 31 pieces"),
        ({"source": "a", "ids": [1]}, "ids has one below 4"),
        ({"source": "a", "kind": "../x"}, "kind: "),
    ):
        answer = ask(site, "/api/attention", **words)
        assert answer.status_code == 422
        assert error_of(answer).startswith(said)


def test_a_sentence_that_fails_fails_its_own_request_alone() -> None:
    fake = Fake()
    with served([fake]) as site, ThreadPoolExecutor(3) as clients:
        fake.gate.clear()
        first = clients.submit(ask, site, text="first.")
        wait_for(lambda: len(fake.batches) == 1)
        bad, good = clients.submit(ask, site, text="poison."), clients.submit(ask, site, text="good.")
        wait_for(lambda: site.batcher.waiting == 2)
        fake.gate.set()
        assert (first.result().status_code, bad.result().status_code) == (200, 500)
        assert error_of(bad.result()) == "this could not be done; the server's log says why"
        assert good.result().json()["text"] == "GOOD."
        said = ask(site, "/api/translate/stream", text="a. poison. b.").text.splitlines()
        assert "could not be translated" in json.loads(said[-1])["error"]


def test_a_full_queue_names_the_time_to_retry() -> None:
    fake = Fake()
    with served([fake], Limits(waiting=4, sentences=4)) as site, ThreadPoolExecutor(5) as clients:
        fake.gate.clear()
        first = clients.submit(ask, site, text="first.")
        wait_for(lambda: len(fake.batches) == 1)
        second = clients.submit(ask, site, text="a. b. c.")
        wait_for(lambda: site.batcher.waiting == 3)
        answer = ask(site, text="d. e.")
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert "try again in" in error_of(answer)
        assert httpx.get(f"{site.url}/healthz").json()["waiting"] == 3
        third = clients.submit(ask, site, text="d.")
        fake.gate.set()
        assert [each.result().status_code for each in (first, second, third)] == [200] * 3


def test_a_request_that_takes_too_long_is_answered_and_dropped() -> None:
    fake = Fake()
    with served([fake], Limits(request_seconds=0.5)) as site, ThreadPoolExecutor(2) as clients:
        fake.gate.clear()
        first = clients.submit(ask, site, text="first.")
        wait_for(lambda: len(fake.batches) == 1)
        second = ask(site, text="second.")
        assert (first.result().status_code, second.status_code) == (504, 504)
        assert error_of(second) == "the request took longer than the 0.5 s that are allowed; send less text"
        said = ask(site, "/api/translate/stream", text="third.").text.splitlines()
        assert json.loads(said[-1]) == {
            "error": "the request took longer than the 0.5 s that are allowed; send less text"
        }
        fake.gate.set()
        assert ask(site, text="fourth.").json()["text"] == "FOURTH."
    assert [sentences for sentences, _, _ in fake.batches] == [["first."], ["fourth."]]


@pytest.mark.parametrize("path", ["/api/translate", "/api/translate/stream", "/api/attention"])
def test_a_disconnected_client_is_dropped_from_the_queue(path: str) -> None:
    fake = Fake()
    with served([fake]) as site, ThreadPoolExecutor(1) as clients:
        fake.gate.clear()
        first = clients.submit(ask, site, text="first.")
        wait_for(lambda: len(fake.batches) == 1)
        closed = threading.Event()

        def send_and_disconnect() -> None:
            words = {"source": "gone."} if path == "/api/attention" else {"text": "gone. away."}
            with httpx.Client() as client, client.stream("POST", f"{site.url}{path}", json=words, timeout=0.5):
                closed.wait(1)

        with pytest.raises(httpx.TimeoutException) if "stream" not in path else memoryview(b""):
            send_and_disconnect()
        wait_for(lambda: site.batcher.waiting == 0)
        fake.gate.set()
        assert first.result().status_code == 200
        assert ask(site, text="next.").json()["text"] == "NEXT."
    assert [sentences for sentences, _, _ in fake.batches] == [["first."], ["next."]]
