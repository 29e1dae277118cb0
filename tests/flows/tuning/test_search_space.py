"""The search space of a sweep: texts to dimensions, and errors that name the option and what is allowed."""

import pytest

from flows.runs import DEMO
from flows.tuning.search_space import Dimension, parse_space
from infra.errors import BadConfiguration


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        ("training.peak=1e-3..1e-2:log", Dimension("training.peak", (), 1e-3, 1e-2, False, True)),
        ("training.warmup=50..400", Dimension("training.warmup", (), 50, 400, True)),
        ("model.p_drop=0.1,0.2,0.1", Dimension("model.p_drop", ("0.1", "0.2"))),
        ("model.norm=pre,post", Dimension("model.norm", ("pre", "post"))),
    ],
)
def test_a_text_becomes_a_dimension(text: str, dimension: Dimension) -> None:
    assert parse_space((text,), DEMO) == (dimension,)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((), "--space is missing"),
        (("training.peak",), "not of the form"),
        (("training.peek=1..2",), "did you mean peak"),
        (("training.peak=1e-3",), "two or more values"),
        (("training.peak=2..1",), "low end below the high end"),
        (("training.peak=0..1:log",), "above 0 with :log"),
        (("training.peak=1..2:square",), "the scale is 'square', allowed is log or none"),
        (("model.norm=a..b",), "allowed is"),
        (("training.warmup=1.5..3",), "whole number"),
        (("training.peak=1..2", "training.peak=1,2"), "names training.peak twice"),
        (("training.seed=1,2",), "searched by --space and fixed by --set"),
    ],
)
def test_a_wrong_space_is_one_sentence(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadConfiguration, match=message):
        parse_space(texts, DEMO, ("training.seed=3",))
