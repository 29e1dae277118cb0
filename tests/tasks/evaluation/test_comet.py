"""COMET's scores enter the card; here a module with unbabel-comet's documented interface stands in for it."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from infra.errors import BadConfiguration, BadData
from infra.processes import signals
from tasks.evaluation import comet as module
from tasks.evaluation.comet import Comet, comet_score

MODULE = """
import json
from pathlib import Path
from types import SimpleNamespace
def load_from_checkpoint(checkpoint_path, reload_hparams=False, strict=False, local_files_only=False):
    weights = json.loads(Path(checkpoint_path).read_text())
    def predict(samples, batch_size=16, gpus=1, progress_bar=True):
        assert gpus == 0 and not progress_bar
        print("loading", end="")
        scores = [weights[str(s["mt"] == s["ref"])] for s in samples if s["src"]]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))
    return SimpleNamespace(predict=predict)
"""


@pytest.fixture
def comet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Comet:
    package = tmp_path / "unbabel_comet-2.2.7.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: unbabel-comet\nVersion: 2.2.7\n")
    (tmp_path / "comet.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    checkpoint = tmp_path / "model.ckpt"
    checkpoint.write_text(json.dumps({"True": 0.9, "False": 0.4}))
    return Comet(str(checkpoint), hashlib.sha256(checkpoint.read_bytes()).hexdigest())


SOURCES = ["Hund", "Mann", "Haus", "Ball"]
HYPOTHESES, REFERENCES = ["dog", "man", "hut", "dog"], ["dog", "man", "house", "ball"]


def test_the_score_is_the_mean_over_sentences_with_its_interval(comet: Comet) -> None:
    found = comet_score(comet, SOURCES, HYPOTHESES, REFERENCES)
    assert found["score"] == pytest.approx(65)
    assert 40 <= found["low"] < 65 < found["high"] <= 90
    assert found["signature"] == f"unbabel-comet:2.2.7|checkpoint:{comet.sha256[:16]}"
    assert comet_score(comet, SOURCES, HYPOTHESES, REFERENCES) == found


def test_what_cannot_be_scored_is_one_sentence(comet: Comet, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadData):
        comet_score(comet, ["", *SOURCES[1:]], HYPOTHESES, REFERENCES)
    wrong = (
        (Comet(comet.path, "0" * 64), "comet.sha256"),
        (Comet("nowhere.ckpt", comet.sha256), "comet.path"),
        (Comet(comet.path, comet.sha256, "no-python"), "comet.python"),
        (Comet(comet.path, comet.sha256, "true"), "comet.python"),
    )
    for each, field in wrong:
        with pytest.raises(BadConfiguration, match=field):
            comet_score(each, SOURCES, HYPOTHESES, REFERENCES)
    monkeypatch.delenv("PYTHONPATH")
    with pytest.raises(BadConfiguration, match="comet.python"):
        comet_score(comet, SOURCES, HYPOTHESES, REFERENCES)


def test_an_interrupt_ends_the_program(comet: Comet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "pid"
    sleeping = f"import os, time, pathlib; pathlib.Path({str(pids)!r}).write_text(str(os.getpid())); time.sleep(600)"
    monkeypatch.setattr(module, "PROGRAM", sleeping)

    def check() -> None:
        if pids.exists() and pids.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(signals, "check", check)
    with pytest.raises(KeyboardInterrupt):
        comet_score(comet, SOURCES, HYPOTHESES, REFERENCES)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)
