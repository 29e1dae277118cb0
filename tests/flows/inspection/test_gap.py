"""``repro gap``: causes are undone by the stages of a run, and the steps sum to the difference."""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_roots import artifact
from small_pipeline import run_small

from flows.commands.gap import gap
from flows.inspection.claims import ClaimedSystem, about_training, find_claim, training_differences
from flows.inspection.compare import ScoredSystem, find_system
from flows.inspection.gap import _decoding_changes
from flows.inspection.garbage_collection import find_garbage
from flows.runner.find_run import find_run
from flows.runner.request import RunRequest, make_plan
from flows.runs import RUNS
from flows.runs.overrides import override
from flows.runs.text_settings import fitting
from flows.views.gap_view import MOST, gap_tables
from flows.website.contents import Root, contents
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from infra.store.local import LocalStore
from infra.store.manifest import Manifest
from tasks.evaluation.score_gap import Claim
from tasks.stages.gap import _gained

MISTAKES = ("averaging.count=1", "decoding.beam=1", "decoding.alpha=0")


def gap_of(capsys: pytest.CaptureFixture[str], name: str, **options: Any) -> dict[str, Any]:
    capsys.readouterr()
    gap(name, as_json=True, **options)
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    whole = found["claim"]["score"] + sum(step["score"] for step in found["steps"])
    assert whole == pytest.approx(found["system"]["score"])
    return found


def plant(monkeypatch: pytest.MonkeyPatch, name: str, *mistakes: str) -> None:
    """Run ``small`` with mistakes, under a name of its own, until it is scored."""
    monkeypatch.setitem(RUNS, name, replace(override(RUNS["small"], mistakes), name=name))
    run_small(RunRequest(name, until="score"))


def test_each_mistake_of_decoding_is_the_first_line_and_all_together_leave_nothing(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for field, mistake in zip(("checkpoints", "beam", "alpha"), MISTAKES, strict=True):
        plant(monkeypatch, field, mistake)
        found = gap_of(capsys, field, claimed_as="small/1")
        assert found["steps"][0]["about"].startswith(f"decoding: {field}")
        assert found["steps"][-1]["score"] == 0, "with the cause undone, it is the claim's translation"
        assert found["differences"] == []
    plant(monkeypatch, "both", *MISTAKES[:2])
    both = gap_of(capsys, "both", claimed_as="small/1")
    assert [step["about"].split()[0] for step in both["steps"]][2:] == ["interaction", "unexplained:"]
    assert both["steps"][-1]["score"] == 0
    assert any(row["about"].endswith("in its place") for row in both["beside"]), "other sets stand beside it"

    for manifest in open_store(Site.named()).list("shard"):
        if manifest.item == "test":
            shutil.rmtree(small / "shard" / manifest.key)
    found = gap_of(capsys, "both", claimed_as="small/1")
    assert [step["about"].split(":")[0] for step in found["steps"]] == ["unexplained"]
    assert any("without shard.test" in each for each in found["left_out"]), "what was removed is not measured"


def test_a_difference_of_the_training_is_named_with_its_command_and_cost(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(
        monkeypatch,
        "half",
        "training.updates=80",
        "training.minutes=50",
        "decoding.beam=1",
        "augment.caps=0.5",
        "training.schedule=linear",
        "training.peak=0.002",
    )
    found = gap_of(capsys, "half", claimed_as="small/1")
    by_name = {each["name"]: each for each in found["differences"]}
    of_updates = by_name["training.updates"]
    assert (of_updates["claimed"], of_updates["here"]) == ("120", "80")
    assert of_updates["command"] == "repro run half --set training.minutes=0 --set training.updates=120"
    timed = "repro run half --set training.schedule=paper --set training.minutes=0"
    assert by_name["training.minutes"]["command"] == timed
    assert by_name["augment.caps"]["claimed"] == "0.0"
    assert by_name["training.schedule"]["command"] == timed
    assert "training.peak" not in by_name, "the claim's schedule does not use it"
    size = by_name["training"]
    assert size["here"].startswith("80 updates, ")
    assert size["claimed"].startswith("120 updates, ")
    assert size["claimed"].endswith(" pairs")
    assert any(each.startswith("dev_perplexity from update ") for each in found["left_out"])
    assert [step["about"].split(":")[0] for step in found["steps"]] == ["decoding", "unexplained"]


def test_no_command_trains_with_a_text_that_its_run_no_longer_has(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = RUNS["small"].corpus
    changed = replace(corpus, parts=(replace(corpus.parts[0], name="changed"),))
    monkeypatch.setitem(RUNS, "small", replace(RUNS["small"], corpus=changed))
    run_small(RunRequest("small", until="score"))
    of_paper = gap_of(capsys, "small/1", claimed_as="paper-base")["differences"]
    gone = {each["cost"] for each in of_paper if each["name"].startswith("model.")}
    assert gone == {"no command: small has other text now"}
    found = gap_of(capsys, "small", claimed_as="small/1")
    shown = [(each["name"], each["claimed"], each["here"], each["command"]) for each in found["differences"]]
    part = f"corpus.parts.{corpus.parts[0].name}"
    assert sorted(shown) == sorted([("corpus.parts.changed", "none", "yes", ""), (part, "yes", "none", "")])
    assert any("put it back, or name a newer version" in each for each in found["left_out"])
    new = gap_of(capsys, "small/1", claimed_as="small")["differences"]
    assert {each["command"] for each in new} == {"repro run small"}


def test_the_clock_is_replaced_with_its_schedule_and_limits_that_it_made_void_are_not_compared(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site.named()
    ours = RunRequest("clock", until="score")
    plant(monkeypatch, "clock", "training.updates=80", "training.schedule=clock", "training.minutes=50")
    claimed = find_claim("small/1", None, ours, site)
    system = find_system("clock", site)
    found = {each.name: each.command for each in training_differences(claimed, system, ours, [])}
    assert found["training.minutes"] == "repro run clock --set training.schedule=paper --set training.minutes=0"
    assert "--set training.minutes=0 " in found["training.updates"], "the clock could end it before"
    assert "training.updates" in found
    of_clock = {**claimed.settings["train"].arguments["training"], "schedule": "clock", "minutes": 20}
    train = replace(claimed.settings["train"], arguments={"training": of_clock})
    shorter = replace(claimed, settings={**claimed.settings, "train": train})
    found = {each.name: each.command for each in training_differences(shorter, system, ours, [])}
    assert found["training.minutes"] == "repro run clock --set training.minutes=20", "the schedule is equal"

    def cut(made: Mapping[str, Manifest]) -> dict[str, Manifest]:
        train = made["train"]
        arguments = {**train.arguments, "training": {**train.arguments["training"], "minutes": 1.0}}
        facts = {**train.facts, "stopped_early": True, "seconds": 60.0}
        return {**made, "train": replace(train, arguments=arguments, facts=facts)}

    both = replace(claimed, settings=cut(claimed.settings)), replace(system, lineage=cut(system.lineage))
    names = {each.name for each in training_differences(*both, ours, [])}
    assert "training.updates" not in names
    assert "training" in names, "the updates done"
    ended = replace(system, lineage=cut(system.lineage))
    commands = {each.name: each.command for each in training_differences(claimed, ended, ours, [])}
    lifted = "repro run clock --set training.schedule=linear --set training.minutes=0 --set training.updates=120"
    assert commands["training.updates"] == lifted, "or the clock would end it once more"
    *_, usual, expected_score = about_training(ended.lineage, ours, [], claimed=30.0)
    pairs = ended.lineage["clean"].facts["pairs"]
    assert expected_score.startswith(f"do not expect 30.00 with {pairs:,} pairs: ")
    assert "had 11.9 BLEU on val with 1,000 pairs, 41.5 with 29,000 pairs; add text" in expected_score
    assert [*about_training(ended.lineage, ours, [], claimed=11.0)][-1] == usual, "it may be reached"
    settings = re.search("`repro run clock (.*?)`", usual)[1].split("--set ")[1:]  # type: ignore[index]
    made = override(find_run("clock"), [each.strip() for each in settings])
    expected = fitting(pairs)[0]
    assert (made.model, made.training) == (expected.model, replace(expected.training, seed=made.training.seed))
    assert f"{made.vocabulary.size:,} pieces, " in usual
    preset = find_claim("notes", 30.0, ours, site)
    with pytest.raises(BadConfiguration, match="only for a version or run, not system:google"):
        find_claim("notes", 30.0, RunRequest("system:google"), site)
    commands = {each.name: each.command for each in training_differences(preset, ended, ours, [])}
    whole = "repro run clock --set training.minutes=0 --set preset=notes"
    assert commands["all settings of the preset"] == whole, "a schedule would override that of the preset"


def test_two_runs_of_a_file_with_one_name_are_two(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import replace\nfrom flows.runs import RUNS\nA = RUNS['small']\n"
        "B = replace(A, decoding=replace(A.decoding, beam=1))\n"
    )
    for each in "BA":
        run_small(RunRequest(f"{file}:{each}", until="score"))
    assert not find_garbage(Site.named()).removable, "both are needed"
    for ours, claimed in ("BA", "AB"):
        found = gap_of(capsys, f"{file}:{ours}", claimed_as=f"{file}:{claimed}")
        assert found["steps"][0]["about"].startswith("decoding: beam is 1" if ours == "B" else "decoding: beam is 2")
        assert found["steps"][-1]["score"] == 0


def test_the_page_of_a_version_links_to_it(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gap_of(capsys, "small/1", claim=20.0)["differences"] == []
    root = Root.read(Site.named())
    pages = dict(contents(root))
    [page] = [name for name in pages if name.startswith("versions/small/1-gap-")]
    assert Path(page).name in str(pages["versions/small/1.html"])
    [other] = [replace(each, arguments={"score": {"key": "of another version 1"}}) for each in root.gaps]
    assert not [name for name in dict(contents(replace(root, gaps=[other]))) if "-gap-" in name]
    kept = {(each.stage, each.why) for each in find_garbage(Site.named()).kept}
    assert ("gap", "version small/1") in kept


def test_a_run_that_writes_lower_case_is_judged_without_case(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, "lower", "vocabulary.lowercase=True", "training.updates=80")
    plant(monkeypatch, "lower-greedy", "vocabulary.lowercase=True", "training.updates=80", "decoding.beam=1")
    found = gap_of(capsys, "lower-greedy", claimed_as="lower")
    assert found["protocol"] == found["claim"]["protocol"] == "13a, lower-cased, detokenised"
    cards = [each.facts for each in open_store(Site.named()).list("score") if each.item == "test"]
    assert any(each["bleu_lc"] == pytest.approx(found["claim"]["score"], abs=1e-3) for each in cards)
    assert [step["about"].split(":")[0] for step in found["steps"]] == ["decoding", "unexplained"]
    assert found["steps"][-1]["score"] == 0
    paper = gap_of(capsys, "lower", claimed_as="paper-base")
    assert paper["steps"][0]["about"].startswith("protocol: 13a, lower-cased"), "what case costs is a bar"


def test_a_published_figure_is_a_claim_of_its_own_protocol(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paper = gap_of(capsys, "small/1", claimed_as="paper-base")
    assert paper["claim"]["score"] == 27.3
    assert any(step["about"].startswith("protocol: 13a") for step in paper["steps"])
    by_name = {each["name"]: each for each in paper["differences"]}
    assert {"corpus", "model.d_model"} <= by_name.keys()
    assert [*by_name][:2] == ["training", "corpus"]
    commands = [each["command"] for each in paper["differences"] if each["command"]]
    assert len({*commands}) == len(commands)
    assert list(gap_tables(paper))[1].row_count == MOST + 1
    assert "training.batching=packed" in by_name["training.batching"]["command"]
    assert by_name["training"]["claimed"] == "100,000 updates"
    tutorial = gap_of(capsys, "small/1", claimed_as="tutorial", claim=25.9)
    assert tutorial["claim"]["metric"] == "bleu_intl"
    ends = {each["name"]: each for each in tutorial["differences"]}["model.source_ends"]
    assert (ends["claimed"], ends["here"]) == ("none", "eos")
    assert ends["command"].endswith("--set model.source_ends=none")
    assert gap_of(capsys, "small/1", claimed_as="workbench", claim=23.69)["claim"]["metric"] == "bleu_sentences"
    assert gap_of(capsys, "small/1", claimed_as="workbench", claim=18.83)["claim"]["score"] == 18.83, "of NLTK"
    assert gap_of(capsys, "small/1", claim=20.0)["steps"][-1]["about"].startswith("unexplained")
    gap("small/1", claim=20.0)
    assert "name the claim's system by --as" in capsys.readouterr().err


def test_a_wrong_claim_is_named(small: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "--claim and --as are empty"),
        ({"claim": 273.0}, "--claim is 273"),
        ({"claim": float("nan")}, "--claim is nan"),
        ({"claimed_as": "paper-bse"}, "allowed of the paper is paper-base"),
        ({"claimed_as": "notes"}, "no score is known"),
        ({"claimed_as": "smal/1"}, "smal.*published claims are paper-base"),
        ({"claim": 20.0, "set_name": "decoding.beam=1"}, "allowed is a scored set of small/1: dev, test"),
    ]
    for options, message in wrong:
        with pytest.raises(BadConfiguration, match=message):
            gap("small/1", **options)


@pytest.mark.parametrize(
    ("early", "last", "said"),
    [
        (13.5, 12.9, "; still improving, so more updates may help"),
        (13.5, 13.1, "; before it 13.000 was best"),
        (5.0, 12.9, "; before it 5.000 was best"),
    ],
)
def test_a_training_improves_at_its_end_if_its_last_check_is_the_best(
    tmp_path: Path, early: float, last: float, said: str
) -> None:
    store = LocalStore(tmp_path)
    made = artifact(store, "train", "k")
    checks = [(80, early), (90, 13.4), (95, 13.0), (100, last)]
    rows = [json.dumps({"done": done, "total": 100, "dev_perplexity": value}) for done, value in checks]
    (made.path() / "metrics.jsonl").write_text("\n".join(rows))
    assert made.manifest
    (found,) = _gained({"train": made.manifest}, store)
    assert found == f"dev_perplexity from update 90 to the last, 100: 13.400 to {last:.3f}{said}"


def test_a_decoding_with_other_numerics_is_named(small: Path) -> None:
    of_claim = find_system("small", Site.named()).lineage
    translated = of_claim["translate.test"]
    decoding = {**translated.arguments["decoding"], "numerics": "strict"}
    ours = {**of_claim, "translate.test": replace(translated, arguments={**translated.arguments, "decoding": decoding})}
    assert _decoding_changes(ours, of_claim, "test")[1] == ["decoding: numerics is strict, claimed fast: not measured"]
    earlier = replace(translated, arguments={**translated.arguments, "decoding": {**decoding, "beta": 0.2}})
    with pytest.raises(BadConfiguration, match="an earlier release: .*beta"):
        _decoding_changes({**of_claim, "translate.test": earlier}, of_claim, "test")


def test_the_teachers_settings_are_not_the_runs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")

    def planned(name: str, *overrides: str) -> dict[str, Manifest]:
        rows = make_plan(RunRequest(name, overrides=overrides).resolve()).outcome.rows
        made = [Manifest(r.stage, r.key, r.version, r.item, r.form, {}, "", r.facts, {}, 0.0, {}) for r in rows]
        return {f"{each.stage}.{each.item}".rstrip(".").removesuffix(".train"): each for each in made}

    distilled = ClaimedSystem(Claim("distilled", 40.0), "demo-distilled", planned("demo-distilled"))
    here = ScoredSystem("demo", {}, planned("demo"))
    found = {each.name: each for each in training_differences(distilled, here, RunRequest("demo"), [])}
    assert (found["synthetic"].claimed, found["synthetic"].here) == ("distillation", "none")
    assert (found["model.layers"].claimed, found["model.layers"].here) == ("1", "2")
    other = replace(here, lineage=planned("demo-distilled", "synthetic.n_best=2", "augment.caps=0.1"))
    found = {each.name: each for each in training_differences(distilled, other, RunRequest("demo-distilled"), [])}
    assert found.keys() == {"synthetic", "augment.caps"}
    assert found["augment.caps"].command.endswith("--set augment.caps=0.0")
