"""Runs and versions are compared by their score artifacts."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_roots import artifact
from small_pipeline import run_small

from flows.commands.compare import compare as compare_command
from flows.inspection.compare import common_sets, compare_systems, find_system, training_size
from flows.runner.request import RunRequest
from flows.runs import RUNS
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.local import LocalStore

OTHER = RunRequest("small", overrides=("decoding.beam=1",))


def test_runs_and_versions_are_compared_on_every_set_and_only_what_differs_is_shown(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site.named()
    first = find_system("small/1", site)
    run_small(OTHER)
    second, changed = find_system("small/2", site), find_system("small", site, OTHER.overrides)
    assert changed.scores == second.scores != first.scores == find_system("small", site).scores
    comparisons = compare_systems(first, second, site)
    assert list(comparisons) == ["dev", "test"]
    for name, differences in comparisons.items():
        bleu = differences[0]
        cards = [
            json.loads((LocalStore(site.root).folder("score", s.scores[name].key) / "card.json").read_text())
            for s in (first, second)
        ]
        assert [bleu.a, bleu.b] == pytest.approx([card["scores"]["bleu"]["score"] for card in cards], abs=1e-4)

    run_small(RunRequest("small", overrides=("averaging.count=1",)))
    capsys.readouterr()
    compare_command("small/1", "small/2", "small/3", as_json=True)
    shown = capsys.readouterr()
    found = json.loads(shown.out.splitlines()[-1])
    assert found["systems"] == ["small/1", "small/2", "small/3"]
    assert found["differing"] == [
        {"name": "averaging.count", "values": ["2", "2", "1"]},
        {"name": "decoding.beam", "values": ["2", "1", "2"]},
    ]
    assert [each["with"] for each in found["comparisons"]] == ["small/2", "small/3"]
    assert list(found["comparisons"][0]["sets"]) == ["dev", "test"]
    lines = shown.err.splitlines()
    assert lines[0].split() == ["differs", "in", "small/1", "small/2", "small/3"]
    assert any(line.split() == ["decoding.beam", "2", "1", "2"] for line in lines)
    monkeypatch.setattr(
        "flows.inspection.compare.training_size", lambda made: f"{made['average'].facts['checkpoints']} updates"
    )
    compare_command("small/1", "small/3")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["training", "2", "updates", "1", "updates"] in rows
    with pytest.raises(BadConfiguration, match="1 systems are named"):
        compare_command("small/1")


def test_a_training_on_a_mixture_had_all_its_pairs(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    train = artifact(store, "train", "k", arguments={"training": {"updates": 9}}, facts={"epochs": 2.0})
    cleaned = artifact(store, "clean", "c", facts={"pairs": 29_000})
    mixed = artifact(store, "mix", "m", facts={"pairs": 129_000})
    made = {each.stage: each.manifest for each in (train, cleaned, mixed) if each.manifest}
    assert training_size(made) == "9 updates, 2.0 epochs, 129,000 pairs"


def test_sets_with_other_sentences_are_left_out_in_a_sentence(
    small: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after ``repro new --replace`` of a changed text, which holds out another dev set."""
    site = Site.named()
    test = RUNS["small"].sets[1]
    monkeypatch.setitem(RUNS, "other", replace(RUNS["small"], name="other", sets=(replace(test, name="dev"), test)))
    run_small(RunRequest("other", until="score"))
    first, second = (find_system(name, site) for name in ("small", "other"))
    assert list(compare_systems(first, second, site)) == ["test"]
    assert "dev is left out: other has other sentences than small" in caplog.text
    caplog.clear()
    assert common_sets(first, second, first) == ["test"]
    assert "dev is left out: other has other sentences than small" in caplog.text
    only_dev = replace(second, scores={"dev": second.scores["dev"]})
    with pytest.raises(BadConfiguration, match="no set with the same sentences .*small has dev, test, other has dev"):
        common_sets(first, only_dev)


def test_missing_scores_are_named(small: Path) -> None:
    site = Site.named()
    with pytest.raises(BadConfiguration, match="'smal' .*score"):
        find_system("smal", site)
    with pytest.raises(BadConfiguration, match="'small/1/score/test' names a part .*, small/1"):
        find_system("small/1/score/test", site)
    key = find_system("small/1", site).scores["dev"].key
    folder = LocalStore(site.root).folder("score", key)
    shutil.rmtree(folder)
    with pytest.raises(BadConfiguration, match=f"{key}.*missing"):
        find_system("small/1", site)
