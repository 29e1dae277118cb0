"""Several seeds of one run: what they share is made once, one that fails stops no other, the spread is reported."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Any, cast

import pytest
from small_pipeline import run_small

from flows.orchestration.flow_parts import scores_markdown, summary_line
from flows.runner import records, seeds
from flows.runner.group import Group, GroupResults, run_group
from flows.runner.outcome import Outcome, StageFailed
from flows.runner.request import RunPlan, RunRequest
from flows.runner.seeds import parse_seeds, requests_by_seed, run_seeds
from infra.errors import BadConfiguration
from infra.site import Site
from infra.tracking.client import mlflow_client
from infra.tracking.mlflow_runs import MlflowRuns
from infra.tracking.tracker import NOTE
from tasks.engine.planner import StageResult

FEW = ("training.checkpoint_every=4", "training.updates=8", "training.dev_every=8")


def scored(**facts: Any) -> Outcome:
    return Outcome("small", [StageResult("score", "test", "k", "completed", facts=facts)])


def test_each_seed_is_a_run_and_what_comes_before_training_is_shared(small: Path) -> None:
    said: list[str] = []
    request = RunRequest("small", until="score")
    found = run_seeds(request.resolve(), (1, 2), run_small, said.append)
    ran = {seed: {row.stage for row in o.rows if row.state == "completed"} for seed, o in found.outcomes.items()}
    assert ran == {"1": set(), "2": {"train", "average", "translate", "score"}}, "seed 1 is the run itself"
    assert not found.failure
    assert said == ["seed 1: every stage is cached", "seed 2: training.seed=2"]
    spreads = {(spread.set_name, spread.measure): spread for spread in found.spreads()}
    assert set(spreads) == {("dev", "dev_perplexity"), *((s, m) for s in ("dev", "test") for m in ("bleu", "chrf"))}
    values = spreads["test", "chrf"].values
    assert values == {int(seed): outcome.scores["test"]["chrf"] for seed, outcome in found.outcomes.items()}
    assert spreads["test", "chrf"].summary["mean"] == pytest.approx(mean(values.values()))
    perplexities = spreads["dev", "dev_perplexity"].values
    assert perplexities[1] != perplexities[2]


def test_a_seed_that_fails_does_not_stop_the_others(small: Path) -> None:
    def fail_seed_2(planned: RunPlan) -> Outcome:
        if planned.resolved.run.training.seed == 2:
            raise StageFailed(Outcome("small", failure="train failed: lightning"))
        return run_small(planned)

    found = run_seeds(RunRequest("small", until="train", overrides=FEW).resolve(), (2, 3), fail_seed_2, print)
    assert found.failure == "1 of 2 seeds failed: seed 2: train failed: lightning"
    (spread,) = found.spreads()
    assert list(spread.values) == [3]
    assert "deviation" not in spread.summary
    assert found.as_json()["seeds"]["2"]["failure"] == "train failed: lightning"


def test_stages_before_training_are_forced_once() -> None:
    request = RunRequest("demo", from_stage="clean", force=("download", "score"))
    first, second = (own for _, own in requests_by_seed(request.resolve(), (1, 2)))
    assert (first.from_stage, first.force, first.overrides) == ("clean", ("download", "score"), ())
    assert (second.from_stage, second.force, second.overrides) == ("train", ("score",), ("training.seed=2",))
    later = [own.from_stage for _, own in requests_by_seed(RunRequest("demo", from_stage="score").resolve(), (1, 2))]
    assert later == ["score", "score"]


def test_a_repeated_command_does_not_train_finished_seeds_again(small: Path) -> None:
    request = RunRequest("small", from_stage="train", until="train", overrides=FEW)

    def made_again() -> dict[str, list[str]]:
        outcomes = run_seeds(request.resolve(), (1, 2), run_small, print).outcomes
        return {seed: [row.stage for row in each.rows if row.state == "completed"] for seed, each in outcomes.items()}

    assert made_again() == {"1": ["train"], "2": ["train"]}
    newest = max((small / "runs" / "small").glob("*.json"))
    newest.write_text(newest.read_text().replace('"outcome": "FINISHED"', '"outcome": "KILLED"'))
    assert made_again() == {"1": [], "2": []}, "the second was killed after its last stage"
    assert made_again() == {"1": ["train"], "2": ["train"]}, "a new request"


@pytest.mark.parametrize(
    ("starts", "forced"),
    [
        ([(1, 0, "FAILED"), (2, 1, "FINISHED"), (3, 2, "FINISHED")], {"1": "train", "2": "", "3": ""}),
        ([(1, 0, "FAILED"), (2, 1, "FINISHED"), (3, -1, "FINISHED")], {"1": "train", "2": "", "3": "train"}),
        ([(1, 0, "FAILED"), (2, 1, "FINISHED"), (1, 2, "FAILED")], {"1": "train", "2": "", "3": "train"}),
        ([(1, 0, "FINISHED"), (2, 1, "FAILED")], {"1": "", "2": "train", "3": "train"}),
    ],
)
def test_a_repeated_command_forces_the_seeds_that_the_attempt_did_not_finish(
    starts: list[tuple[int, int, str]], forced: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = RunRequest("demo", from_stage="train").resolve()
    requests = dict(requests_by_seed(resolved, (1, 2, 3)))
    for seed, hour, outcome in starts:
        started = datetime(2026, 5, 1, 12, tzinfo=UTC) + timedelta(hours=hour)
        records.write(resolved.site.root, "demo", vars(requests[seed]), [], outcome, started, attempt="the same")
    monkeypatch.setattr(seeds, "run_members", lambda group, *_: group)
    members = cast("Group", run_seeds(resolved, (1, 2, 3), run_small, print)).members
    assert {seed: member.request.from_stage for seed, member in members.items()} == forced


def test_a_group_is_recorded_although_mlflow_did_not_answer_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_once(*_: Any) -> str:
        monkeypatch.setattr(MlflowRuns, "_experiment", find_experiment)
        raise ConnectionError("refused")

    find_experiment = MlflowRuns._experiment
    monkeypatch.setattr(MlflowRuns, "_experiment", refuse_once)
    monkeypatch.setattr("infra.tracking.write_queue.RETRY_AFTER_SECONDS", 0.0)
    site = Site(root=tmp_path)
    group = Group("group", "group", "seed", "small", site, ())
    outcomes = {seed: scored(bleu=3.0, bleu_lc=4.0, source_input="lower-cased") for seed in ("1", "2")}
    found = run_group(group, run_small, print, lambda _: GroupResults(group, outcomes))
    (run,) = mlflow_client(f"sqlite:///{tmp_path}/mlflow.db").search_runs(["1"])
    assert run.data.metrics == found.facts == {"1.test.bleu_lc": 4.0, "2.test.bleu_lc": 4.0}
    assert "1.test.bleu_lc | 4.00" in run.data.tags[NOTE]


def test_a_flow_run_says_the_score_that_a_card_shows_first() -> None:
    facts = {"bleu": 3.0, "bleu_lc": 4.0, "chrf": 5.0, "sentences": 1234}
    for source, shown in (("", "bleu 3.00"), ("lower-cased", "bleu_lc 4.00")):
        outcome = scored(**facts, source_input=source)
        assert summary_line(outcome).endswith(f" · test: {shown}, chrf 5.00")
        assert "| sentences | 1,234 |" in scores_markdown(outcome)


def test_seeds_are_two_or_more_whole_numbers_and_need_a_training() -> None:
    for words in ("1", "1,1", "1,two", "1,,2", "-1,2", ","):
        with pytest.raises(BadConfiguration, match=f"--seeds is '{words}', allowed are two or more different"):
            parse_seeds(words)
    assert parse_seeds("3, 1") == (3, 1)
    with pytest.raises(BadConfiguration, match="--until clean: only train and what follows has a seed"):
        list(requests_by_seed(RunRequest("demo", until="clean").resolve(), (1, 2)))
