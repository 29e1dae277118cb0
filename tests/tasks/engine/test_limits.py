"""Limits on facts of stages: a breach fails the stage, or warns; its artifact is kept, and no key changes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_stages import CALLS, ORDER, Quiet, built, settings

from infra.errors import BadData
from infra.site import Site
from infra.store.local import LocalStore
from infra.store.store import Artifact
from tasks.engine.limits import Limits
from tasks.engine.planner import Planner, Scope
from tasks.engine.runner import Runner
from tasks.engine.stage import Facts, checks, engine, stage


def artifact(folder: Path, name: str, facts: Mapping[str, Any]) -> Artifact:
    return Artifact(name, "key", folder, facts=facts)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("score.dev.bleu >= 20", True),
        ("score.dev.bleu >= 20.5", False),
        ("warn score.dev.bleu<=2e1", True),
        ("score.dev.missing >= 0", False),
        ("score.dev.signature >= 0", False),
    ],
)
def test_a_limit_is_the_least_or_greatest_value_of_a_fact(tmp_path: Path, text: str, holds: bool) -> None:
    limits = Limits.parse([text])
    found = artifact(tmp_path, "score", {"bleu": 20.0, "signature": "x"})
    assert limits.breaches(found, "test") == []
    assert limits.checks == [], "a limit on another set"
    broken = limits.breaches(found, "dev")
    assert [check.holds for check in limits.checks] == [holds]
    assert len(broken) == (not holds)


def test_shares_and_rates_are_facts_too(tmp_path: Path) -> None:
    limits = Limits.parse(["train.tokens_per_second >= 50", "train.seconds <= 1"])
    broken = limits.breaches(artifact(tmp_path, "train", {"target_tokens": 100, "seconds": 4}), "")
    assert [check.value for check in limits.checks] == [25, 4]
    assert f"{replace(limits.checks[0], value=4_500_966)}".startswith("train has tokens_per_second 4,500,966, expected")
    assert broken == limits.checks
    clean = Limits.parse(["clean.rejected_share <= 0.1", "clean.length_ratio >= 1"])
    counts = {"rejected": 8, "read": 20, "rejected_by": {"empty": 5, "not_in": 1, "distinct": 1, "distinct_source": 1}}
    clean.breaches(artifact(tmp_path, "clean", counts), "")
    assert [check.value for check in clean.checks] == [0.25, None]


@pytest.mark.parametrize(
    "text",
    [
        "bleu >= 20",
        "score.dev.bleu > 20",
        "score.dev.bleu >= high",
        "score.dev.bleu >= 1.2.3",
        "fail score.bleu >= 1",
        "train.loss@9 <= 1",
        "",
    ],
)
def test_another_form_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"expect has .*, allowed is \[warn\] STAGE\[\.ITEM\]\.FACT >= or <= NUMBER"):
        Limits.parse([text])


def run(root: Path, *texts: str) -> Runner:
    return built(Runner(settings(root, limits=Limits.parse(texts))))


def plan(root: Path, *texts: str) -> Planner:
    return built(Planner(LocalStore(root), Site(root=root), Scope(ORDER), Limits.parse(texts)))


def test_a_breach_fails_the_stage_and_a_changed_limit_goes_on_with_its_artifact(tmp_path: Path) -> None:
    CALLS.clear()
    for _ in range(2):  # made, then found
        with pytest.raises(BadData, match="make has value 3, expected is value >= 4; its artifact is kept: change the"):
            run(tmp_path, "make.value >= 4")
    assert CALLS == ["make"]
    (row,) = [row for row in plan(tmp_path, "make.value >= 4").rows if row.stage == "make"]
    assert (row.state, row.is_refused) == ("cached", True)
    assert [f"{check}" for check in row.broken] == ["make has value 3, expected is value >= 4"]
    made = run(tmp_path, "make.value >= 3", "make.bytes <= 100", "make.seconds <= 3600")
    assert [row.state for row in made.rows] == ["cached", "completed", "completed"]
    assert CALLS == ["make", "twice", "total"]


def test_a_warning_is_said_and_stands_in_the_row(tmp_path: Path) -> None:
    said = "make has value 3, expected is value >= 4"
    for state in ("completed", "cached"):
        made = run(tmp_path, "warn make.value >= 4")
        assert (made.rows[0].state, *map(str, made.rows[0].broken)) == (state, said)
        assert isinstance(made.settings.display, Quiet)
        assert made.settings.display.said == [said]
    row = plan(tmp_path, "warn make.value >= 4").rows[0]
    assert (row.state, *map(str, row.broken), row.is_refused) == ("cached", said, False)


def test_a_later_stage_sees_the_checks_of_the_earlier_ones(tmp_path: Path) -> None:
    seen: list[str] = []

    @stage(version=1)
    def look(out: Path, number: int) -> Facts:
        (out / "n").write_text("1")
        seen.extend(f"{check.limit.text} {check.holds}" for check in checks())
        return {"n": number}

    limits = Limits.parse(["look.n >= 1", "warn look.two.n >= 9"])
    with engine(Runner(settings(tmp_path, Scope(("look",)), limits=limits))):
        for item, number in (("", 1), ("two", 2), ("three", 3)):
            look.for_item(item)(number)
    assert seen == ["n >= 1 True", "n >= 1 True", "n >= 9 False"]
    assert checks() == ()
