"""--set: typed, checked, and helpful about what it does not know."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.runner.request import RunRequest
from flows.runs import RUNS
from flows.runs.overrides import as_options, override, run_title, without_replaced
from flows.runs.paper_rows import PAPER_RUNS
from infra.errors import BadConfiguration
from tasks.cleaning.filters import LengthRatio


def test_values_take_the_type_of_their_field() -> None:
    demo = RUNS["demo"]
    words = ["training.updates=8_00", "training.peak=1", "model.norm=post", "vocabulary.nfkc=yes", "evaluate=dev, test"]
    run = override(demo, words)
    assert run.training.updates == 800
    assert isinstance(run.training.peak, float)
    assert (run.model.norm, run.vocabulary.nfkc, run.evaluate) == ("post", True, ("dev", "test"))
    (ratio,) = (
        rule
        for rule in override(demo, ["filters.rules.LengthRatio.max=1.5"]).filters.rules
        if rule.name == "length_ratio"
    )
    assert ratio == LengthRatio(1.5)
    assert override(run, ["evaluate="]).evaluate == ()
    assert override(demo, []) == demo


def test_the_last_of_two_values_for_a_field_counts_and_is_the_only_one_shown() -> None:
    asked = ("training.updates=120", "training.seed=3", "training.updates=80")
    request = RunRequest("demo", overrides=asked)
    assert request.overrides == without_replaced(asked) == ("training.updates=80", "training.seed=3")
    assert request.resolve().run == override(RUNS["demo"], asked)
    assert run_title("demo", request.overrides) == "demo · updates 80 · seed 3"
    assert run_title("seed 3", request.overrides) == "seed 3 · updates 80"


def test_a_profile_sets_rules_and_limits_and_what_follows_changes_it() -> None:
    run = override(RUNS["demo"], ["profile=tutorial", "sharding.max_pieces=90"])
    assert run.filters == PAPER_RUNS["base"].filters
    assert (run.sharding.min_pieces, run.sharding.max_pieces, run.sharding.max_ratio) == (3, 90, 2.0)
    assert run.sharding.pairs_per_shard == RUNS["demo"].sharding.pairs_per_shard
    paper = PAPER_RUNS["table2-base"]
    assert override(paper, ["profile=paper"]) == paper, "the paper's rows clean as the profile says"


def result(words: list[str]) -> object:
    """The run, or the sentence of its refusal."""
    try:
        return override(RUNS["demo"], words)
    except BadConfiguration as refusal:
        return f"{refusal}"


CHOICES = {
    "profile": ("paper", "tutorial"),
    "training.updates": ("60", "5000", "none"),
    "training.keep": ("1", "5"),
    "training.patience": ("0", "2"),
    "training.batch_tokens": ("100", "400"),
    "averaging.count": ("1", "5"),
    "averaging.which": ("last", "best"),
    "sharding.min_pieces": ("90", "300"),
    "sharding.max_pieces": ("80", "320"),
    "model.attention": ("own", "torch"),
    "model.d_k": ("16", "64"),
    "model.tide": ("no",),
}


@given(st.lists(st.sampled_from(sorted(CHOICES)), min_size=2, unique=True), st.data())
def test_any_order_gives_the_same_run_or_the_same_refusal(paths: list[str], data: st.DataObject) -> None:
    words = [f"{path}={data.draw(st.sampled_from(CHOICES[path]))}" for path in paths]
    assert result(words) == result(data.draw(st.permutations(words)))


def test_fewer_updates_average_the_checkpoints_that_they_save(caplog: pytest.LogCaptureFixture) -> None:
    assert override(RUNS["demo"], ["training.updates=45"]).averaging.count == 3
    assert "averaging.count is 3 in place of 5: 45 updates save 3 checkpoints, one every 15" in caplog.text
    with pytest.raises(BadConfiguration, match="averaging.count is 5, allowed is at most 3"):
        override(RUNS["demo"], ["training.updates=45", "averaging.count=5"])


def test_only_what_all_of_them_come_to_is_checked() -> None:
    alone = "training.checkpoint_every=800"
    with pytest.raises(BadConfiguration, match=f"^--set {alone}: averaging.count is 5, allowed is at most 2"):
        override(RUNS["demo"], [alone])
    assert override(RUNS["demo"], [alone, "averaging.count=1"]).averaging.count == 1
    both = ["sharding.min_pieces=300", "sharding.max_pieces=320", "training.batch_tokens=400"]
    assert override(RUNS["demo"], both).sharding.max_pieces == 320
    assert override(RUNS["demo"], ["training.seed=2", "training.seed=3"]).training.seed == 3, "the last one counts"


def test_settings_are_printed_as_a_shell_reads_them() -> None:
    words = ["expect=score.dev.bleu >= 85", "training.seed=2"]
    assert shlex.split(as_options(words)) == ["--set", words[0], "--set", words[1]]
    assert as_options(words[1:]) == " --set training.seed=2"
