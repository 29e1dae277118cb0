"""The search space of a sweep: texts to distributions, and errors that name the option and what is allowed."""

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from flows.runs import DEMO
from flows.tuning.search_space import parse_space
from infra.errors import BadConfiguration


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("training.peak=1e-3..1e-2:log", FloatDistribution(1e-3, 1e-2, log=True)),
        ("training.warmup=50..400", IntDistribution(50, 400)),
        ("model.p_drop=0.1,0.2,0.1", CategoricalDistribution(("0.1", "0.2"))),
        ("model.norm=pre,post", CategoricalDistribution(("pre", "post"))),
        ("training.continue=demo/1,demo/2", CategoricalDistribution(("demo/1", "demo/2"))),
    ],
)
def test_a_text_becomes_a_distribution(text: str, distribution: BaseDistribution) -> None:
    assert parse_space((text,), DEMO) == {text.partition("=")[0]: distribution}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((), "--space is missing"),
        (("training.peak",), "not of the form"),
        (("training.peek=1..2",), "did you mean peak"),
        (("training.peak=1e-3",), "two or more values"),
        (("training.peak=2..1",), "low end below the high end"),
        (("training.peak=0..1:log",), "above 0 with :log"),
        (("training.peak=1..inf",), "a finite low end"),
        (("training.factor=-inf..1",), "a finite low end"),
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
