"""Options of ``repro run`` and ``repro plan``."""

from flows.commands.options import RunOptions


def test_strict_numerics_stands_for_two_overrides() -> None:
    asked = RunOptions("demo", overrides=("training.seed=2",))
    strict = RunOptions("demo", overrides=("training.seed=2",), strict_numerics=True)
    run = strict.request().resolve().run
    assert (run.training.seed, run.training.numerics, run.decoding.numerics) == (2, "strict", "strict")
    run = asked.request().resolve().run
    assert (run.training.seed, run.training.numerics, run.decoding.numerics) == (2, "fast", "fast")
