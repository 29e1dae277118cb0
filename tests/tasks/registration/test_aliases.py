"""Registrations and promotions at the same time: the better version ends as champion, and what a person chose stays."""

from functools import partial
from random import Random

import pytest
from interleaved_registry import Model, every_order, model


@pytest.mark.parametrize(("first", "second"), [(40.0, 35.0), (35.0, 40.0), (40.0, 40.0)])
def test_of_two_registrations_the_better_one_is_champion_in_every_order(first: float, second: float) -> None:
    def run(choices: list[int]) -> list[int]:
        with model() as made:
            made.register("before", 30.0)
            lived = made.turns.run([partial(made.register, "a", first), partial(made.register, "b", second)], choices)
            _check(made, max(first, second))
            assert made.holder("candidate").version == 3, "the newest"
            return lived

    assert every_order(run) > 200


def test_of_two_first_versions_on_different_dev_sets_one_stays_champion_in_every_order() -> None:
    def run(choices: list[int]) -> list[int]:
        with model() as made:
            bodies = [partial(made.register, "a", 40.0, "one"), partial(made.register, "b", 35.0, "other")]
            lived = made.turns.run(bodies, choices)
            assert made.holder("champion").version == 1, "scores on different sets cannot be compared"
            return lived

    every_order(run)


def test_of_many_registrations_the_best_one_is_champion() -> None:
    """Any request of one may come between two requests of another."""
    for seed in range(100):
        random = Random(seed)
        with model(points=()) as made:
            scores = [random.randint(30, 40) for _ in range(4)]
            bodies = [partial(made.register, f"{place}", float(score)) for place, score in enumerate(scores)]
            made.turns.run(bodies, (random.randrange(10**6) for _ in iter(int, 1)))
            _check(made, max(scores))
            assert made.holder("candidate").version == 4


def test_what_a_person_promotes_meanwhile_stays_in_every_order() -> None:
    asked: list[bool] = []

    def run(choices: list[int]) -> list[int]:
        with model() as made:
            made.register("before", 30.0)
            made.register("poor", 20.0)

            def promote() -> None:
                made.turns.step("read")
                asked.append(len(made.reads) > 2)
                made.promote(2)

            lived = made.turns.run([partial(made.register, "good", 40.0), promote], choices)
            _check(made, 20.0 if asked[-1] else 40.0)
            return lived

    every_order(run)
    assert {True, False} == set(asked)


def test_what_a_person_promotes_while_two_versions_are_registered_stays() -> None:
    for seed in range(100):
        random = Random(seed)
        with model(points=()) as made:
            made.register("before", 30.0)
            made.register("poor", 20.0)

            def promote(made: Model = made) -> None:
                while len(made.reads) < 4:
                    made.turns.step("wait")
                made.promote(2)

            bodies = [partial(made.register, "a", 40.0), partial(made.register, "b", 35.0), promote]
            made.turns.run(bodies, (random.randrange(10**6) for _ in iter(int, 1)))
            _check(made, 20.0)


def test_a_repeated_registration_takes_no_version_of_its_run_that_was_measured_otherwise() -> None:
    with model() as made:
        made.register("run", 30.0)
        made.register("run", 40.0)
        made.register("run", 40.0)
        assert made.made["run"]["version"] == 2


def _check(made: Model, best: float) -> None:
    """The champion has this BLEU, and each registration says what it is."""
    champion = made.holder("champion")
    assert float(champion.tags["dev_bleu"]) == best
    for run_id, said in made.made.items():
        if run_id == champion.run_id and "champion" in said["aliases"]:
            assert said["decision"].startswith("champion: ")
