"""Runs with source and target swapped: ``--swap``, and what back-translation derives from a run."""

from dataclasses import replace
from typing import Any, TypeVar

from flows.runs.languages import WITHOUT_SPACES
from flows.runs.run import Run
from flows.runs.synthetic import further_training
from infra.errors import bad_values
from tasks.cleaning.filters import (
    Distinct,
    Empty,
    Filter,
    Filters,
    InvalidUnicode,
    Length,
    NoLetters,
    NotIn,
    OverlongWord,
)
from tasks.cleaning.language_filters import Language
from tasks.corpus.catalogue import EvaluationSet, Part

Pair = TypeVar("Pair", Part, EvaluationSet)

SWAPPED = "-swapped"
"""Suffix of the name of a run with swapped sides."""


def swapped_run(run: Run) -> Run:
    """Make the run of the other direction: ``multi30k-ende-swapped`` translates German to English.

    Texts, languages, sets and rules change sides; all else stays. Raises BadConfiguration for a run that cannot be
    swapped: with back-translation, the monolingual text would have the wrong language.
    """
    name = f"{run.name}{SWAPPED}"
    with bad_values(f"{name}: "):
        return _swap_sides(run, name=name, about=f"{run.about}; source and target swapped")


def reversed_run(run: Run, seed: int, updates: int = 0) -> Run:
    """Swap source and target, and train with ``seed`` for ``updates``; 0: as long as the run."""
    return _swap_sides(
        run,
        training=further_training(run.training, seed, updates),
        decoding=replace(run.decoding, ensemble=()),
        synthetic=None,
    )


def _swap_sides(run: Run, **changes: Any) -> Run:
    corpus = replace(
        run.corpus,
        source_language=run.corpus.target_language,
        target_language=run.corpus.source_language,
        parts=tuple(_swap(part) for part in run.corpus.parts),
    )
    sets = tuple(_swap(each) for each in run.sets)
    filters = replace(run.filters, rules=tuple(_swap_rule(rule) for rule in run.filters.rules))
    return replace(run, corpus=corpus, sets=sets, filters=filters, **changes)


def monolingual_filters(run: Run) -> Filters:
    """Choose filters for monolingual text: of single lines as in the run, of lines of its sets, of repetitions."""
    language = run.corpus.target_language
    own = run.filters.rules
    rules: list[Filter] = [Empty(), InvalidUnicode(), NoLetters()]
    rules += [] if language in WITHOUT_SPACES else [OverlongWord()]
    rules += [rule for rule in own if isinstance(rule, Length)]
    rules += [replace(rule, source=language, target=language) for rule in own if isinstance(rule, Language)]
    excluded = tuple(each.name for each in run.sets if not each.noise)
    return replace(run.filters, rules=(*rules, NotIn(), Distinct()), exclude=excluded)


def _swap(pair: Pair) -> Pair:
    return replace(pair, source=pair.target, target=pair.source)


def _swap_rule(rule: Filter) -> Filter:
    """Swap the sides of a rule that has values for each side or concerns one side."""
    values = vars(rule)
    if {"source", "target"} <= values.keys():
        return replace(rule, source=values["target"], target=values["source"])  # type: ignore[type-var]
    if values.get("on") in ("source", "target"):
        return replace(rule, on="source" if values["on"] == "target" else "target")  # type: ignore[type-var]
    return rule
