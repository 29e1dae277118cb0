"""Seeds on record form a group by their run's settings, and may make a version champion that one pair did not."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from finished_run import FinishedRun
from small_pipeline import run_small

from flows.commands import run as run_module
from flows.commands.compare import compare as compare_command
from flows.commands.options import RunOptions
from flows.inspection import promotion
from flows.inspection.promotion import promote
from flows.inspection.seed_groups import find_group
from flows.runner.outcome import Outcome
from flows.runner.request import RunRequest
from infra.errors import BadConfiguration
from infra.site import Site
from infra.tracking.registry import resolve, set_alias
from tasks.engine.planner import StageResult
from tasks.evaluation.significance import SeedScores, compare_groups

GREEDY = "decoding.beam=1"


def test_all_seeds_of_a_run_are_a_group_and_groups_are_compared(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site.named()
    for overrides in (("training.seed=2",), (GREEDY,), (GREEDY, "training.seed=2"), ("averaging.count=1",)):
        run_small(RunRequest("small", until="score", overrides=overrides))
    assert list(find_group("small", site)) == list(find_group("small/1", site)) == [1, 2]
    assert list(find_group(f"small --set {GREEDY}", site)) == [1, 2]
    assert list(find_group("small --set averaging.count=1", site)) == [1]
    capsys.readouterr()
    compare_command("small", f"small --set {GREEDY}", seeds=True, as_json=True)
    shown = capsys.readouterr()
    found = json.loads(shown.out.splitlines()[-1])
    assert found["groups"] == {"small": [1, 2], f"small --set {GREEDY}": [1, 2]}
    assert found["differing"] == [{"name": "decoding.beam", "values": ["2", "1"]}]
    places = [(each["set_name"], each["measure"]) for each in found["comparisons"]]
    assert places == [(name, measure) for name in ("dev", "test") for measure in ("bleu", "chrf")]
    chrf = found["comparisons"][1]
    assert chrf["difference"]["effect"] == pytest.approx(
        np.mean(list(chrf["b"].values())) - np.mean(list(chrf["a"].values()))
    )
    assert "verdict" in shown.err
    run_small(RunRequest("small", until="score", overrides=("training.seed=3",)))
    compare_command("small", f"small --set {GREEDY}", seeds=True, as_json=True)
    more = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert more["groups"]["small"] == [1, 2, 3]
    assert more["comparisons"] == found["comparisons"], "the pairs decide"
    with pytest.raises(BadConfiguration, match="'small --set averaging.count=1' with scores here are 1, allowed are 2"):
        compare_command("small", "small --set averaging.count=1", seeds=True)
    with pytest.raises(BadConfiguration, match="'smal' with scores here are 0, allowed are 1"):
        find_group("smal", site)
    with pytest.raises(BadConfiguration, match="is named, allowed is a run, perhaps with settings"):
        find_group("small decoding.beam=1", site)


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A registry with a champion and a version within noise of it."""
    run = FinishedRun(tmp_path_factory.mktemp("registered"))
    run.register("ende", run.tags(39.1))
    run.register("ende", run.tags(39.2), p_value=0.43)
    return Site(root=run.root, tracking_uri=run.tracker.uri)


@pytest.fixture
def challenge(registered: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Site]:
    """The first version is champion, and the runs of both have seeds with these scores."""
    set_alias(registered.tracking, resolve(registered.tracking, "ende/1"), "champion", "as at first")

    def challenge(champion: list[float], challenger: list[float], same: bool = False) -> Site:
        both = {"ende/1": champion, "ende/2": challenger}

        def group(label: str, _: Site) -> Any:
            keys = [f"{'' if same else label}{seed}" for seed in range(len(both[label]))]
            scores = [{"val": SimpleNamespace(key=key)} for key in keys]
            return dict(enumerate(SimpleNamespace(scores=each) for each in scores))

        def compared(*_: Any) -> Any:
            groups = (SeedScores(np.array(each), np.repeat([each], 9, axis=0).T) for each in both.values())
            a, b = (dict(enumerate(each)) for each in both.values())
            return SimpleNamespace(difference=compare_groups(*groups), measure="bleu", a=a, b=b)

        monkeypatch.setattr(promotion, "find_group", group)
        monkeypatch.setattr(promotion, "compare_on", compared)
        return registered

    return challenge


@pytest.mark.parametrize(
    ("champion", "challenger", "moves"),
    [
        ([39.1, 39.2, 39.0], [39.5, 39.6, 39.4], True),
        ([39.1], [39.5, 39.6, 39.4], True),
        ([39.1, 39.8, 38.4], [39.5, 39.6, 39.4], False),
        ([39.1], [39.5, 39.6], False),
    ],
)
def test_three_seeds_move_the_champion_where_their_mean_is_better(
    challenge: Callable[..., Site], champion: list[float], challenger: list[float], moves: bool
) -> None:
    site = challenge(champion, challenger)
    said = promote("ende/2", 1.0, site, by_score=False)
    now = resolve(site.tracking, "ende@champion")
    assert now.version == (2 if moves else 1)
    assert said.startswith("ende/2 is now champion: " if moves else "ende/2 is not champion: ") or len(challenger) < 3
    assert not moves or now.promotions[-1].reason.startswith("mean dev BLEU of 3 seeds less that of")


@pytest.mark.parametrize("compared", [2, 3])
def test_the_compared_seeds_count_and_not_all_on_record(
    challenge: Callable[..., Site], compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = challenge([39.1, 39.2, 39.0][:compared], [39.5, 39.6, 39.4][:compared])

    def find_four(label: str, _: Site) -> Any:
        return {seed: SimpleNamespace(scores={"val": SimpleNamespace(key=f"{label}{seed}")}) for seed in range(4)}

    monkeypatch.setattr(promotion, "find_group", find_four)
    said = promote("ende/2", 1.0, site, by_score=False)
    start = "ende/2 is now champion: mean dev BLEU of 3 seeds less that of the champion, version 1 (3 seeds): "
    assert said.startswith(start) if compared == 3 else not said


def test_seeds_of_the_champions_own_run_too_poor_versions_and_removed_scores_move_nothing(
    challenge: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = challenge([39.1, 39.2, 39.0], [39.5, 39.6, 39.4], same=True)
    assert promote("ende/2", 1.0, site, by_score=False) == ""
    assert promote("ende/2", 50.0, site, by_score=False) == promote("ende/1", 1.0, site, by_score=False) == ""
    challenge([39.1], [39.5, 39.6, 39.4])
    without = {1: SimpleNamespace(scores={"test": SimpleNamespace(key="1")})}
    monkeypatch.setattr(promotion, "find_group", lambda *_: without)
    assert promote("ende/2", 1.0, site, by_score=False) == ""


def test_a_version_within_noise_becomes_champion_where_that_is_asked_for(challenge: Callable[..., Site]) -> None:
    site = challenge([39.1], [39.2])
    assert "below the 50 that a champion needs" in promote("ende/2", 50.0, site, by_score=True)
    said = promote("ende/2", 1.0, site, by_score=True)
    assert said.endswith("not below the 39.10 of the champion, version 1; by score alone: --promote-better")
    assert resolve(site.tracking, "ende@champion").version == 2
    assert promote("ende/2", 1.0, site, by_score=True) == "ende/2 is champion already"
    assert "ende/1 is not champion" in promote("ende/1", 1.0, site, by_score=True)


@pytest.mark.parametrize("asked", [True, False])
def test_run_promotes_where_it_is_asked_to(asked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where all stages are cached, as after a run that ended within noise."""
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    facts = {"name": "demo", "version": 7}
    outcome = Outcome("demo", [StageResult("register", "", "k", "cached", facts=facts)])
    monkeypatch.setattr(run_module, "dispatch", lambda *_: outcome)
    monkeypatch.setattr(run_module, "make_plan", lambda _: None)
    called: list[str] = []
    monkeypatch.setattr(promotion, "promote", lambda label, *_, by_score: called.append(label) or "")
    run_module.run(RunOptions("demo"), promote_better=asked)
    assert called == ["demo/7"] * asked
    with pytest.raises(BadConfiguration, match="--promote-better is given, allowed is that for a whole run without"):
        run_module.run(RunOptions("demo", overrides=("training.updates=200",)), promote_better=True)
