"""Keys: equal exactly when the meaning is equal."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.store.store import Artifact
from model.config import Decoding, Model, Training
from model.config.keying import unkeyed, unkeyed_default
from tasks.engine.keys import artifact_key, artifacts_in, canonical, differences
from tasks.engine.stage import Facts, StageCall, engine, stage


@pytest.fixture(autouse=True, scope="module")
def _classes_count_as_the_project_s() -> Iterator[None]:
    """As a user's they would have the code of all files beside ``tests`` in their keys (``test_own_classes.py``)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.engine.keys.own_code", lambda _: "")
        yield


@dataclass(frozen=True)
class Old:
    size: int = 3


@dataclass(frozen=True)
class Grown:
    size: int = 3
    extra: str = unkeyed_default("none")
    address: str = unkeyed("here")
    __qualname__ = "Old"


Grown.__name__ = "Old"


@given(st.dictionaries(st.text(), st.integers(), min_size=1))
def test_order_of_names_does_not_count(arguments: dict[str, int]) -> None:
    assert artifact_key("s", 1, arguments) == artifact_key("s", 1, dict(reversed(arguments.items())))


def test_every_part_counts() -> None:
    base = artifact_key("clean", 1, {"model": Model()})
    assert artifact_key("shard", 1, {"model": Model()}) != base
    assert artifact_key("clean", 2, {"model": Model()}) != base
    assert artifact_key("clean", 1, {"model": Model(layers=2)}) != base
    assert artifact_key("clean", 1, {"training": Training()}) != base


def test_late_fields_keep_old_keys_until_they_are_used() -> None:
    assert artifact_key("s", 1, {"x": Grown()}) == artifact_key("s", 1, {"x": Old()})
    assert artifact_key("s", 1, {"x": Grown(address="elsewhere")}) == artifact_key("s", 1, {"x": Old()})
    assert artifact_key("s", 1, {"x": Grown(extra="some")}) != artifact_key("s", 1, {"x": Old()})


@dataclass(frozen=True)
class Numbers:
    """Every way in which a field may declare numbers."""

    real: float = 0.5
    whole: int = 3
    truth: bool = False
    maybe: float | None = None
    either: int | float | str = 1
    pick: Literal[0, 1, "none"] = 0
    several: tuple[float, ...] = ()
    pair: tuple[int, float] = (1, 1.5)
    named: Mapping[str, float] = field(default_factory=dict)
    nested: tuple[tuple[float, ...], ...] | None = None
    inner: "Numbers | None" = None
    added: float = unkeyed_default(1.0)


NUMBER = st.sampled_from([0, 0.0, -0.0, False, 1, 1.0, True, 2, 2.0, 2.5, 2**53 + 1, 2.0**53, 10**400])
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("real", "whole", "added"), NUMBER),
    "truth": st.sampled_from([0, 0.0, False, 1, 1.0, True]),
    "maybe": NUMBER | st.none(),
    "either": NUMBER | st.just("2"),
    "pick": st.sampled_from([0, 0.0, False, 1, True, "none"]),
    "several": st.lists(NUMBER, max_size=2).map(tuple),
    "pair": st.tuples(NUMBER, NUMBER),
    "named": st.dictionaries(st.sampled_from("ab"), NUMBER),
    "nested": st.lists(st.lists(NUMBER, max_size=2).map(tuple), max_size=2).map(tuple) | st.none(),
}
INNER = st.fixed_dictionaries({}, optional=FIELDS).map(lambda chosen: Numbers(**chosen))
NUMBERS = INNER | st.builds(lambda outer, inner: replace(outer, inner=inner), INNER, INNER)


@given(NUMBERS, NUMBERS)
def test_dataclasses_that_are_equal_have_one_key_and_others_have_others(one: Numbers, other: Numbers) -> None:
    assert (artifact_key("s", 1, {"x": one}) == artifact_key("s", 1, {"x": other})) == (one == other)


def test_a_number_keeps_the_form_that_artifacts_have() -> None:
    written = json.dumps(canonical(Decoding(alpha=2)))
    assert written == json.dumps(canonical(Decoding(alpha=2.0)))
    assert '"alpha": 2.0' in written
    assert '"beam": 4' in written


def test_an_argument_that_equals_its_default_is_as_if_it_were_not_there() -> None:
    class Keys:
        def resolve(self, call: StageCall) -> Artifact:
            return Artifact(call.stage.name, call.key, Path())

    @stage(version=1)
    def brew(out: Path, size: int) -> Facts:
        return {}

    older = brew

    @stage(version=1)
    def brew(out: Path, size: int, start: tuple[Artifact, ...] = ()) -> Facts:
        return {}

    with engine(Keys()):
        assert brew(3) == brew(3, ()) == brew(3, start=()) == older(3)
        assert brew(3, (Artifact("brew", "k1", Path()),)) not in (older(3), brew(3, (Artifact("brew", "k2", Path()),)))


def test_artifacts_count_by_key_not_by_place() -> None:
    here, there = Artifact("clean", "k", Path("/a"), "c1"), Artifact("clean", "k", Path("/b"), "c2", {"n": 1})
    assert canonical((here,)) == canonical([there])
    assert list(artifacts_in({"b": (here,), "a": [there], "c": 3})) == [there, here]


@pytest.mark.parametrize("value", [None, {1, 2}, b"x", Path("x"), object()])
def test_a_value_without_a_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="cannot be"):
        artifact_key("s", 1, {"x": value})


def test_differences_name_the_field_and_both_values() -> None:
    before, now = canonical({"training": Training()}), canonical({"training": replace(Training(), updates=7)})
    assert differences(now, before) == ["training.updates: 100000 -> 7"]
    assert differences(now, now) == []
    other = canonical({"shards": Artifact("shard", "k2", Path())})
    assert differences(other, canonical({"shards": Artifact("shard", "k1", Path())})) == ["shards: another shard"]


def test_differences_see_new_and_gone_fields() -> None:
    @dataclass(frozen=True)
    class Wide:
        a: int = 1
        parts: tuple[int, ...] = field(default=(1, 2))

    wide = canonical(Wide())
    narrow = {name: value for name, value in wide.items() if name != "a"}
    assert differences(wide, narrow) == ["a: new, 1"]
    assert differences(narrow, wide) == ["a: gone, was 1"]
    assert differences(canonical(Wide(parts=(1, 3))), wide) == ["parts[1]: 2 -> 3"]
    longer = canonical(Wide(parts=(1, 2, 5)))
    assert differences(longer, wide) == ["parts: new, 5"]
    assert differences(wide, longer) == ["parts: gone, was 5"]
