"""Scores translations that something else made, by the stage that scores those of runs: same card, same artifacts.

Each call that makes some is a run in MLflow, in the experiment of the run whose set it is.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import polars as pl

from flows.runner.find_run import find_run
from flows.runner.systems import SYSTEM, ForeignScore, foreign_scores, system_scores
from flows.runs import Run
from flows.runs.unknown_names import did_you_mean
from infra.errors import BadConfiguration, BadData
from infra.guards.path_names import is_plain_name
from infra.servers.mlflow_sqlite import check_database
from infra.site import Site, open_store
from infra.store.store import Artifact
from infra.tracking.tracker import Tracker, ending
from tasks.corpus.catalogue import EvaluationSet
from tasks.corpus.translations import in_set_order
from tasks.engine.planner import Planner, Scope
from tasks.engine.progress import Display
from tasks.engine.run_settings import RunSettings
from tasks.engine.runner import Runner
from tasks.engine.stage import engine
from tasks.evaluation.doubts import doubts
from tasks.evaluation.seed_spread import item_of
from tasks.reporting.stage_files import stage_files
from tasks.stages.download import download
from tasks.stages.prepare_sets import prepare_sets
from tasks.stages.receive import Translations, receive
from tasks.stages.score import score, score_card

Made = TypeVar("Made")


def score_systems(
    on: str, systems: Sequence[Translations], site: Site, display: Display, *, anyway: bool = False
) -> list[ForeignScore]:
    """Score translations of the set ``on``, in place of those that the store has of it by systems of the same names.

    Raises BadData for lines that are not those of the set, and, but with ``anyway``, for any doubt; nothing is stored
    then. The set is prepared where no run did it before.
    """
    run, evaluation = _named_set(on)
    title = f"{run.name}/{evaluation.name}"
    store = open_store(site)
    before = foreign_scores(store)
    pairs = _make(site, display, run.name, title, {}, partial(_prepared, evaluation))
    table = pl.read_parquet(pairs.path() / "pairs.parquet").rename({"target": "reference"})
    checked = [_checked(replace(each, on=title), table, anyway=anyway) for each in systems]
    older = [each for given in checked for each in _older(given, evaluation.name, pairs, before)]
    for each in checked:
        tags = {"system": each.name, "on": title, "files": each.files, "mlflow.source.name": "repro score"}
        stages = partial(_scored, each, evaluation, run.corpus.target_language)
        _make(site, display, run.name, f"{SYSTEM}{each.name} {title}", tags, stages)
    for made in (artifact for each in older for artifact in (each.score, each.translations)):
        store.remove(made.stage, made.key)
    return [system_scores(store, f"{SYSTEM}{each.name}")[evaluation.name] for each in checked]


def score_lines(
    given: Translations, references: Sequence[str], sources: Sequence[str], language: str, *, anyway: bool = False
) -> tuple[dict[str, Any], pl.DataFrame]:
    """The card of translations without any set, and a table with the scores of each sentence; stores nothing.

    ``sources`` may be empty, ``language``, that of the references, unknown. Raises BadData as ``score_systems`` does.
    """
    if sources and len(sources) != len(references):
        raise BadData(f"--source has {len(sources):,} lines, allowed is one for each of {len(references):,} references")
    ids = [f"{number}" for number in range(1, len(references) + 1)]
    sides = {"source": [*sources]} if sources else {}
    table = pl.DataFrame({"pair_id": ids, **sides, "reference": [*references]})
    lines = _checked(given, table, anyway=anyway).lines
    return score_card(table.with_columns(hypothesis=pl.Series(lines, dtype=pl.String)), given.files, language)


def _named_set(text: str) -> tuple[Run, EvaluationSet]:
    """The run and the set of ``demo/test``. Raises BadConfiguration for an unknown one."""
    run_name, _, name = text.rpartition("/")
    run = find_run(run_name or name)
    known = {f"{run_name or name}/{each.name}": each for each in run.sets}
    if text not in known:
        raise BadConfiguration(f"--on is {text!r}{did_you_mean(text, known) or ','} allowed is {', '.join(known)}")
    return run, known[text]


def _prepared(evaluation: EvaluationSet) -> Artifact:
    sides = [text.file for text in (evaluation.source, evaluation.target)]
    archives = download.map({file.path: file for file in sides}, len(sides))
    return prepare_sets.for_item(evaluation.name)(evaluation, *(archives[file.path] for file in sides))


def _scored(given: Translations, evaluation: EvaluationSet, language: str) -> Artifact:
    pairs = _prepared(evaluation)
    received = receive.for_item(item_of(evaluation.name, given.name))(given, pairs)
    return score.for_item(evaluation.name)(received, pairs, evaluation.name, language)


def _checked(given: Translations, table: pl.DataFrame, *, anyway: bool) -> Translations:
    """The translations in the order of the set. Raises BadData for doubts, all in one sentence."""
    lines = in_set_order(given.lines, table["pair_id"].to_list(), given.files)
    sources = table["source"].to_list() if "source" in table else []
    found = "" if anyway else "; ".join(doubts(lines, table["reference"].to_list(), sources))
    if found:
        raise BadData(f"nothing was scored of {given.files}: {found} (--anyway scores them as they are)")
    digest = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    return replace(given, lines=tuple(lines), sha256=digest)


def _older(given: Translations, set_name: str, pairs: Artifact, before: Sequence[ForeignScore]) -> list[ForeignScore]:
    """What the store has of the system and the set, and other lines. Raises BadConfiguration for a useless name.

    A second set of the same name, as newstest2014 of another language is, could not be told apart.
    """
    if not is_plain_name(given.name):
        raise BadConfiguration(f"--name is {given.name!r}, allowed is a word of letters, digits, '_' and '-'")
    same = [each for each in before if (each.name, each.score.item) == (f"{SYSTEM}{given.name}", set_name)]
    for each in same:
        if each.on != given.on and f"{pairs.stage}/{pairs.key}" not in each.score.inputs:
            message = f"--name is {given.name!r}, which has translations of another {set_name}, that of {each.on}"
            raise BadConfiguration(f"{message}; allowed is another name")
    return [each for each in same if each.translations.arguments["translations"]["sha256"] != given.sha256]


def _make(
    site: Site, display: Display, experiment: str, title: str, tags: Mapping[str, str], stages: Callable[[], Made]
) -> Made:
    """What the stages give, with those that are missing made in a run of MLflow."""
    store = open_store(site)
    planner = Planner(store, site, Scope(()))
    with engine(planner):
        stages()
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts")
    runner = Runner(RunSettings(store, site, Scope(()), display, tracker, plan=planner.lookups, files=stage_files))
    with closing(runner), ending(tracker), engine(runner):
        if any(row.state != "hit" for row in planner.rows):
            check_database(site.tracking)
            tracker.start(experiment, title, tags, {})
        return stages()
