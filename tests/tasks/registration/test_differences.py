"""The fields in which runs differ are found in their manifests, and nothing else is."""

from dataclasses import replace
from typing import Any

from flows.runs import DEMO, Run
from infra.store.manifest import Manifest
from tasks.cleaning.filters import Distinct
from tasks.engine.keys import canonical
from tasks.registration.differences import differing_fields

MADE = {
    "commit": "a" * 40,
    "machine": "x86_64",
    "modules": {"model.train": "1", "model.job": "1"},
    "libraries": {"python": "3.11.7", "torch": "2.13.0"},
}


def manifest(stage: str, item: str = "", made: dict[str, Any] | None = None, **arguments: Any) -> Manifest:
    facts = {"device": "cpu", "ranks": 1} if stage == "train" else {}
    form = canonical(arguments)
    return Manifest(stage, "k", 1, item, form, {}, "", facts, {}, 1.0, {**MADE, **(made or {})})


def lineage(run: Run, **made: Any) -> dict[str, Manifest]:
    found = {
        "clean": manifest("clean", corpus=run.corpus, filters=run.filters),
        "learn_bpe": manifest("learn_bpe", vocabulary=run.vocabulary),
        "shard.train": manifest("shard", "train", sharding=run.sharding),
        "train": manifest("train", made=made, model=run.model, training=run.training),
        "average": manifest("average", averaging=run.averaging),
    }
    for each in run.sets:
        found[f"prepare_sets.{each.name}"] = manifest("prepare_sets", each.name, evaluation=each)
        found[f"translate.{each.name}"] = manifest("translate", each.name, decoding=run.decoding)
        found[f"score.{each.name}"] = manifest("score", each.name, set_name=each.name, language="de")
    return found


def differing(*systems: dict[str, Manifest]) -> dict[str, tuple[str, ...]]:
    return {field.name: field.values for field in differing_fields(systems)}


def test_equal_runs_differ_in_nothing() -> None:
    assert differing(lineage(DEMO), lineage(DEMO), lineage(DEMO)) == {}


def test_only_what_differs_is_named_by_the_field_that_set_takes() -> None:
    rules = tuple(rule for rule in DEMO.filters.rules if type(rule).__name__ != "OverlongWord")
    changed = tuple(replace(rule, max=70) if type(rule).__name__ == "Length" else rule for rule in rules)
    other = replace(
        DEMO,
        filters=replace(DEMO.filters, rules=changed, exclude=("dev",)),
        model=replace(DEMO.model, p_drop=0.2),
        training=replace(DEMO.training, batching="packed"),
        sets=DEMO.sets[:1],
    )
    third = replace(DEMO, decoding=replace(DEMO.decoding, beam=8))
    assert differing(lineage(DEMO), lineage(other), lineage(third)) == {
        f"sets.{DEMO.sets[1].name}": ("yes", "none", "yes"),
        "filters.exclude": ("dev, test", "dev", "dev, test"),
        "filters.rules.OverlongWord": ("yes", "none", "yes"),
        "filters.rules.Length.max": ("60", "70", "60"),
        "model.p_drop": ("0.1", "0.2", "0.1"),
        "training.batching": ("default", "packed", "default"),
        "decoding.beam": ("4", "4", "8"),
    }
    assert list(differing(lineage(third), lineage(other)))[-1] == "decoding.beam"


def test_the_order_of_equal_filters_counts() -> None:
    turned = replace(DEMO, filters=replace(DEMO.filters, rules=DEMO.filters.rules[::-1]))
    assert list(differing(lineage(DEMO), lineage(turned))) == ["filters.rules (order)"]


def test_code_libraries_and_machine_differ_where_a_stage_was_made_by_others() -> None:
    newer = {
        "commit": "b" * 40 + "+",
        "machine": "aarch64",
        "modules": {"model.train": "2", "model.job": "1"},
        "libraries": {"python": "3.11.7", "torch": "2.14.0"},
    }
    assert differing(lineage(DEMO), lineage(DEMO, **newer)) == {
        "code.train": ("a" * 10, f"{'b' * 10}+ (model.train)"),
        "library.torch": ("2.13.0", "2.13.0, 2.14.0"),
        "machine": ("x86_64", "aarch64, x86_64"),
    }
    other_commit = {"commit": "b" * 40}
    assert differing(lineage(DEMO), lineage(DEMO, **other_commit)) == {}, "another commit of the same modules"


def test_removed_artifacts_are_named_and_their_fields_are_not_taken_for_defaults() -> None:
    left = lineage(replace(DEMO, model=replace(DEMO.model, p_drop=0.2)))
    removed = {name: each for name, each in left.items() if name != "train"}
    assert differing(lineage(DEMO), left, removed) == {
        "model.p_drop": ("0.1", "0.2", "removed"),
        "removed": ("none", "none", "train"),
    }


def test_a_second_rule_of_a_class_is_the_only_difference() -> None:
    rules = (*DEMO.filters.rules, Distinct(on="source"))
    other = replace(DEMO, filters=replace(DEMO.filters, rules=rules))
    assert differing(lineage(DEMO), lineage(other)) == {"filters.rules.Distinct 2": ("none", "Distinct")}
