"""A registered version on the page: what it answers is what ``repro translate`` writes, through either engine."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import matplotlib.image
import numpy as np
import pytest

from flows.inference.load_version import decoding_config, dev_lines, load_version, select_versions
from flows.web.served_version import ServedVersion
from infra.errors import BadConfiguration, BadData
from infra.site import Site
from infra.tracking.client import mlflow_client
from infra.tracking.model_files import local_folder
from infra.tracking.model_version import Version
from model.config import Decoding
from model.decoding.search_engine import CTRANSLATE2, OWN
from model.decoding.translation import Search
from model.decoding.version_translator import VersionTranslator
from tests.flows.test_cli import REPRO, call

LINES = ["The dog sees a cat.", "A man runs to the old house.", "The children read a book."]
BEAM_3 = Decoding(beam=3)
REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def registered(small: Path) -> Version:
    [found] = select_versions(["small@champion"], Site.named())
    return found


@pytest.fixture
def loaded(registered: Version) -> VersionTranslator:
    return load_version(registered, Site.named(), "own")


@pytest.fixture
def version(registered: Version, loaded: VersionTranslator) -> ServedVersion:
    return ServedVersion(registered, loaded)


def test_hypotheses_are_ranked_and_their_pieces_are_their_ids(
    version: ServedVersion, loaded: VersionTranslator
) -> None:
    found = version.translate(LINES, Search(BEAM_3, 3))
    assert [each["source"] for each in found] == LINES
    for sentence in found:
        assert len(sentence["pieces"]) == loaded.lengths([sentence["source"]])[0]
        assert len(sentence["hypotheses"]) == 3
        ranks = [(not each["finished"], -each["score"]) for each in sentence["hypotheses"]]
        assert ranks == sorted(ranks)
        for each in sentence["hypotheses"]:
            assert len(each["ids"]) == len(each["pieces"])
            assert each["text"] == loaded.translator.vocabulary.decode_target(each["ids"])
    assert {len(each["hypotheses"]) for each in version.translate(LINES, Search(BEAM_3, 5))} <= {3, 4, 5}
    [alone] = version.translate(LINES[1:2], Search(BEAM_3))
    assert alone["hypotheses"][0]["ids"] == found[1]["hypotheses"][0]["ids"]


def test_attention_is_of_the_pieces_that_were_read_and_written(
    version: ServedVersion, loaded: VersionTranslator
) -> None:
    [sentence] = version.translate(LINES[:1], Search(loaded.decoding))
    best = sentence["hypotheses"][0]
    maps = loaded.attention(LINES[0], best["ids"])
    assert maps["encoder"].rows == maps["cross"].columns == (*sentence["pieces"], "</s>")
    assert maps["decoder"].rows == maps["cross"].rows == (*best["pieces"], "</s>")
    assert maps["decoder"].columns == ("<s>", *best["pieces"])
    for each in maps.values():
        assert each.weights.shape == (1, 2, len(each.rows), len(each.columns))
        assert np.allclose(each.weights.sum(-1), 1, atol=1e-5)
    for wrong in (2, loaded.translator.vocabulary.target_size, -1):
        with pytest.raises(ValueError, match=f"ids has {wrong}"):
            version.attention("a", [wrong], "cross")


def test_a_version_is_searched_by_ctranslate2_by_default(
    small: Path, registered: Version, version: ServedVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    site = Site.named()
    assert len(dev_lines(registered, site)) > 5
    served = ServedVersion(registered, load_version(registered, site))
    assert (served.engine, version.engine) == (CTRANSLATE2, OWN)
    assert (small / "ctranslate2").is_dir()
    for n_best, engine in ((1, CTRANSLATE2), (2, OWN)):
        search = Search(Decoding(), n_best)
        found = served.translate(LINES, search)
        assert [each["engine"] for each in found] == [engine] * 3
        for theirs, ours in zip(found, version.translate(LINES, search), strict=True):
            assert ours["engine"] == OWN
            assert [each["ids"] for each in theirs["hypotheses"]] == [each["ids"] for each in ours["hypotheses"]]
            assert theirs["hypotheses"][0]["score"] == pytest.approx(ours["hypotheses"][0]["score"], abs=0.05)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(BadConfiguration, match=r"ctranslate2 is not installed here: pip install"):
        ServedVersion(registered, load_version(registered, site, "ctranslate2"))
    with pytest.raises(BadConfiguration, match=r"--quantization is 'int8', allowed is float32 with --engine own"):
        load_version(registered, site, "own", "int8")


def test_versions_are_chosen_once_and_broken_ones_named(small: Path, tmp_path: Path) -> None:
    site = Site.named()
    assert [f"{each.name}/{each.version}" for each in select_versions([], site)] == ["small/1"]
    assert len(select_versions(["small", "small/1", "small@champion"], site)) == 1
    with pytest.raises(BadConfiguration, match="no model 'smal' is registered"):
        select_versions(["smal"], site)
    [version] = select_versions(["small"], site)
    file = local_folder(site.tracking, version) / "weights" / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:1000])
    try:
        with pytest.raises(BadData, match="the files of its weights differ from those that were registered"):
            load_version(version, site, "own")
    finally:
        file.write_bytes(whole)
    for each in ("champion", "candidate"):
        mlflow_client(site.tracking).delete_registered_model_alias("small", each)
    assert [f"{each.name}/{each.version}" for each in select_versions([], site)] == ["small/1"]


def test_a_setting_of_an_earlier_release_is_left_out() -> None:
    tags = {"decoding.beam": "2", "decoding.numerics": "fast", "decoding.beta": "0.0"}
    assert decoding_config(Version("one", 1, datetime.now(UTC), (), tags, "", "")) == Decoding(beam=2)


@pytest.fixture
def serving(small: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    process = subprocess.Popen(
        [*REPRO, "serve", "small@champion", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdout
    yield process, process.stdout.readline().strip()
    process.kill()
    process.communicate()


def test_the_command_answers_as_translate_does_and_ends_in_order(
    serving: tuple["subprocess.Popen[str]", str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    process, url = serving
    text = "\n".join([f"{LINES[0]} {LINES[1]}", "", LINES[2]])
    assert httpx.get(f"{url}/healthz", timeout=60).json()["status"] == "ready"
    answer = httpx.post(f"{url}/api/translate", json={"text": text, "model": "small@champion"}, timeout=60).json()
    assert {each["engine"] for paragraph in answer["paragraphs"] for each in paragraph} == {"CTranslate2"}
    given, out = tmp_path / "in", tmp_path / "out"
    given.write_text(f"{text}\n")
    assert call(monkeypatch, "translate", f"{given}", f"{out}", "--model", "small@champion") == 0
    assert f"{answer['text']}\n" == out.read_text()
    call(monkeypatch, "status")
    assert f"repro serve: process {process.pid} on " in (listed := capsys.readouterr().out)
    assert f" serves small/1 at {url} since 20" in listed
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    said = process.stderr.read() if process.stderr else ""
    assert f"serving at {url}; Ctrl-C stops" in said
    assert f"curl {url}/api/translate -H 'Content-Type: application/json' -d '{{" in said
    assert "warning" not in said
    assert "others can reach" not in said
    assert "small/1, champion, candidate: CTranslate2 (float32, " in said
    assert said.endswith("repro: stopped\n")
    call(monkeypatch, "status")
    assert "repro serve" not in capsys.readouterr().out


def test_an_unsafe_or_unknown_host_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, value, why in (
        ("--host", "0.0.0.0", "--host is '0.0.0.0', which others can reach, and no password is set"),
        ("--allow-host", "https://x.example", "--allow-host has 'https://x.example', allowed are names as in"),
    ):
        assert call(monkeypatch, "serve", option, value) == 2
        assert why in capsys.readouterr().err


def test_with_a_password_it_asks_for_it_and_answers_to_named_hosts(small: Path) -> None:
    words = [*REPRO, "serve", "--host", "0.0.0.0", "--port", "0", "--allow-host", "translate.example"]
    auth_set = os.environ | {"REPRO_AUTH": "reader:long-enough-a-word"}
    done = subprocess.Popen(words, stdout=-1, stderr=-1, text=True, env=auth_set)
    try:
        assert done.stdout
        url = done.stdout.readline().strip().replace("0.0.0.0", "127.0.0.1") + "/healthz"
        auth = ("reader", "long-enough-a-word")
        assert httpx.get(url, timeout=60).status_code == 401
        assert httpx.get(url, auth=auth, timeout=60).status_code == 200
        for name, status in (("translate.example", 200), ("some.name", 400)):
            assert httpx.get(url, auth=auth, headers={"host": name}, timeout=60).status_code == status
        done.terminate()
        _, said = done.communicate(timeout=60)
        assert "others can reach 0.0.0.0: they need the password, and nothing is encrypted" in said
        assert "/api/translate -u USER " in said
        assert "long-enough-a-word" not in said
    finally:
        done.kill()


def test_all_heads_are_drawn(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "heads.png"
    options = ("--attention", "--model", "small", "--out", f"{out}")
    assert call(monkeypatch, "trace", LINES[0], *options) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert matplotlib.image.imread(out).shape[0] > 500
    assert call(monkeypatch, "trace", "a " * 300, *options) == 2
    assert "the sentence has 300 pieces, allowed are 120" in capsys.readouterr().err
