"""What the results of a run's stages say together."""

from flows.runner.outcome import Outcome
from tasks.engine.planner import StageResult


def row(stage: str, item: str, **facts: float) -> StageResult:
    return StageResult(stage, item, "k", "completed", facts=facts)  # type: ignore[arg-type]


def test_an_outcome_warns_of_cut_translations_and_of_weights_worse_than_a_checkpoint() -> None:
    cut = [row("translate", item, sentences=20, unfinished=number) for item, number in (("val", 0), ("test/seed-2", 9))]
    trained = [row("train", "", dev_perplexity=5.0), row("train", "seed-2", dev_perplexity=1.0)]
    scored = [row("score", "val", perplexity=5.5), row("score", "test", perplexity=99.0)]
    first, second = Outcome("demo", [*cut, *trained, *scored]).remarks("val")
    assert "9 of 20 translations of test/seed-2" in first
    assert "5.5 on val" in second
    assert Outcome("demo", [cut[0], trained[0], row("score", "val", perplexity=5.0)]).remarks("val") == []
    assert Outcome("demo", []).remarks("val") == []
