"""Facts of a run that a user must know of are said: count, set and what to do; others give no warning."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.store.manifest import Manifest
from tasks.reporting.remarks import (
    CUT_SHARE,
    EMPTY_SHARE,
    WORSE,
    dev_set,
    failed_translations,
    run_remarks,
    worse_weights,
)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_a_share_of_cut_translations_is_a_warning(sentences: int, share: float) -> None:
    cut = round(share * sentences)
    found = failed_translations("val", {"sentences": sentences, "unfinished": cut})
    assert bool(found) == (cut > 0 and cut >= CUT_SHARE * sentences)
    assert all(f"{cut:,} of {sentences:,}" in each and "val" in each and "max_extra" in each for each in found)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_that_nearly_all_translations_are_empty_is_a_warning(sentences: int, share: float) -> None:
    empty = round(share * sentences)
    found = failed_translations("val", {"sentences": sentences, "unfinished": 0, "empty": empty})
    assert bool(found) == (empty >= EMPTY_SHARE * sentences)
    assert all(f"{empty:,} of {sentences:,} translations of val are empty" in each for each in found)


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.none() | st.floats(1, 1e6))
def test_weights_worse_than_a_single_checkpoint_are_a_warning(made: float, last: float, best: float | None) -> None:
    train = {"dev_perplexity": last} | ({} if best is None else {"best_dev_perplexity": best})
    found = worse_weights("val", train, {"perplexity": made})
    lower = min(train.values())
    assert bool(found) == (made > WORSE * lower)
    assert all(f"{made:.4g} on val" in each and f"{lower:.4g}" in each for each in found)


@pytest.mark.parametrize(("made", "warns"), [(2.1, False), (3.0, True)])
def test_of_a_training_that_the_clock_ended_the_average_is_a_warning_if_it_is_clearly_worse(
    made: float, warns: bool
) -> None:
    facts = {"updates": 5, "seconds": 60.0, "stopped_early": True, "dev_perplexity": 2.0}
    found = {
        minutes: run_remarks("val", {"updates": 9, "minutes": minutes}, facts, {}, {"val": {"perplexity": made}})
        for minutes in (1.0, 2.0)
    }
    assert found[1.0][0].startswith("the clock ended")
    assert found[1.0][1:] == found[2.0] * warns
    [average] = found[2.0]
    assert f"perplexity {made:g} on val, the last checkpoint alone 2:" in average
    assert average.endswith(
        "average fewer (averaging.count, training.keep_epochs); or train longer (training.updates or minutes)"
    )


@pytest.mark.parametrize(("dev", "expected"), [("a", "val"), ("b", "test"), ("c", "")])
def test_the_dev_set_is_the_one_that_the_training_was_validated_on(dev: str, expected: str) -> None:
    def made(**arguments: object) -> Manifest:
        return Manifest("s", "k", 1, "", arguments, {}, "", {}, {}, 1.0, {})

    translations = {"val": made(pairs={"key": "a"}), "test": made(pairs={"key": "b"}), "gone": None}
    assert dev_set(made(dev={"key": dev}), translations) == expected
    assert dev_set(None, translations) == ""
