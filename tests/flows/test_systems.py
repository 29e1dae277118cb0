"""Translations that something else made stand beside those of runs: same scores, compared, listed, kept."""

import json
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest

from flows.api import scores, sentences
from flows.commands.compare import compare
from flows.commands.models import models
from flows.commands.score import score
from flows.inspection.garbage_collection import find_garbage
from flows.inspection.verify import verify
from flows.runner.systems import ForeignScore
from flows.website.write import write_site
from infra.errors import BadConfiguration, BadData
from infra.site import Site, open_store
from infra.tracking.client import mlflow_client


def write(file: Path, lines: Iterable[str]) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


@pytest.fixture
def google(mirror: Path, tmp_path: Path) -> Path:
    """Translations of the test set of ``small``, which nobody has prepared or run: half of each reference."""
    references = (mirror / "small" / "test.de").read_text().splitlines()
    return write(tmp_path / "google.txt", (line[: len(line) // 2] for line in references))


def test_they_get_the_scores_of_a_run_and_stand_beside_it(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site.named()
    same = write(tmp_path / "google.txt", sentences("small").filter(pl.col("set") == "test")["hypothesis"])
    score(f"{same}", on="small/test", anyway=True, as_json=True)
    shown = capsys.readouterr()
    assert "stored; `repro compare small system:google`" in shown.err
    card = json.loads(shown.out.splitlines()[-1])["system:google"]
    theirs = scores("small").filter((pl.col("set") == "test") & ~pl.col("metric").str.starts_with("perplexity"))
    assert scores("system:google").equals(theirs)
    assert card["bleu_by_source_length"]
    assert "perplexity" not in card
    compare("small/1", "system:google", as_json=True)
    compared = capsys.readouterr()
    sets = json.loads(compared.out)["comparisons"][0]["sets"]
    assert {(each["a"] - each["b"], each["p"]) for each in sets["test"]} == {(0, 1)}
    models("small", systems=True)
    assert "system:google" in capsys.readouterr().out.splitlines()[-1]
    with pytest.raises(BadConfiguration, match="'smal'.*did you mean small"):
        models("smal", systems=True)
    client = mlflow_client(site.tracking)
    experiment = client.get_experiment_by_name("small").experiment_id
    [run] = client.search_runs([experiment], "tags.`mlflow.source.name` = 'repro score'")
    assert run.data.metrics["test.bleu"] == pytest.approx(card["scores"]["bleu"]["score"])
    write_site(site, tmp_path / "public")
    for page in ("models/small.html", "versions/small/1.html"):
        assert "system:google" in (tmp_path / "public" / page).read_text()
    assert not [each for each in find_garbage(site).removable if each.stage in ("receive", "score")]
    assert [each.wrong for each in verify(["system:google"], "local", lambda *_: None)] == [(), ()]


def test_new_ones_take_the_place_of_earlier_ones_and_can_be_forgotten(
    google: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(f"{google}", on="small/test")
    before = scores("system:google")
    write(google, google.read_text().upper().splitlines())
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ForeignScore, "remove", Mock(side_effect=KeyboardInterrupt))
        score(f"{google}", on="small/test")
    assert len([*open_store(Site.named()).list("receive")]) == 2
    assert not scores("system:google").equals(before), "the newest count where the removal was interrupted"
    score(f"{google}", on="small/test")
    assert not scores("system:google").equals(before)
    store = open_store(Site.named())
    assert len([*store.list("receive")]) == 1
    with pytest.raises(BadConfiguration, match="no system 'system:gogle'.* did you mean system:google"):
        scores("system:gogle")
    with pytest.raises(BadConfiguration, match="'google' has no .*; did you mean system:google"):
        scores("google")
    with pytest.raises(BadConfiguration, match="--on is 'small/dev', allowed is small/test"):
        score(forget="google", on="small/dev")
    score(forget="google")
    assert not [*store.list("receive"), *store.list("score")]


def test_nothing_is_stored_of_what_is_doubtful(google: Path, mirror: Path, tmp_path: Path) -> None:
    lines = google.read_text().splitlines()
    short = write(tmp_path / "short.txt", lines[:-1])
    with pytest.raises(BadData, match="11 lines"):
        score(f"{google}", f"{short}", on="small/test", anyway=True)
    with pytest.raises(BadData, match="are the sides or languages swapped"):
        score(f"{mirror}/small/test.en", on="small/test")
    write(google, ["", *lines[1:]])
    with pytest.raises(BadData, match="1 of 12 lines are empty, the first is line 1.*anyway"):
        score(f"{google}", on="small/test")
    with pytest.raises(BadConfiguration, match="did you mean small/test"):
        score(f"{google}", on="small/tset")
    with pytest.raises(BadConfiguration, match="allowed is a word"):
        score(f"{google}", on="small/test", name="my system", anyway=True)
    assert not [*open_store(Site.named()).list("receive")]


def test_files_are_scored_without_any_run(google: Path, mirror: Path, capsys: pytest.CaptureFixture[str]) -> None:
    references = mirror / "small/test.de"
    score(f"{google}", on="small/test")
    score(f"{google}", references=references, language="de", as_json=True)
    whole = json.loads(capsys.readouterr().out.splitlines()[-1])["google"]
    stored = sentences("system:google")
    assert [each["chrf"] for each in whole["each_sentence"]] == stored["chrf"].to_list()
    score(f"{google}", references=references, as_json=True)
    bare = json.loads(capsys.readouterr().out.splitlines()[-1])["google"]
    assert bare["scores"]["bleu"] == whole["scores"]["bleu"]
    assert whole["scores"].keys() - bare["scores"].keys() == {"bleu_paper", "bleu_paper_untweaked", "bleu_moses_lc"}
