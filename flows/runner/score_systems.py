"""Scores translations that something else made, by the stage that scores those of runs: same card, same artifacts.

The translations and their score are artifacts like any other, and each call that makes some is a run in MLflow, in the
experiment of the run whose set it is.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import polars as pl

from flows.runner.find_run import find_run
from flows.runner.systems import SYSTEM, ForeignScore, foreign_scores, system_scores
from flows.runs import Run
from flows.runs.unknown_names import did_you_mean
from infra.errors import BadConfiguration, BadData
from infra.servers.mlflow_sqlite import check_database
from infra.site import Site, open_store
from infra.store.store import Artifact, Store
from infra.tracking.tracker import Tracker, ending
from model.config.keying import require_name
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


@dataclass(frozen=True)
class NamedSet:
    """A set of a run, by its name ``demo/test``."""

    run: Run
    evaluation: EvaluationSet

    @property
    def label(self) -> str:
        return f"{self.run.name}/{self.evaluation.name}"

    @staticmethod
    def parse(text: str) -> "NamedSet":
        """Raises BadConfiguration for an unknown run or set."""
        run_name, _, name = text.rpartition("/")
        run = find_run(run_name or name)
        for each in run.sets:
            if run_name and each.name == name:
                return NamedSet(run, each)
        known = [f"{run_name or name}/{each.name}" for each in run.sets]
        raise BadConfiguration(f"--on is {text!r}{did_you_mean(text, known) or ','} allowed is {', '.join(known)}")


@dataclass(frozen=True)
class ReadTranslations:
    """Lines of a system as they were read: ``label`` names their files."""

    name: str
    label: str
    lines: Sequence[str]


def score_systems(
    on: NamedSet, systems: Sequence[ReadTranslations], site: Site, display: Display, *, anyway: bool = False
) -> list[ForeignScore]:
    """Score translations of a set, in place of those that the store has of it by systems of the same names.

    Raises BadData for lines that are not those of the set, and, but with ``anyway``, for any doubt; nothing is stored
    then. The set is prepared where no run did it before.
    """
    store = open_store(site)
    try:
        for each in systems:
            require_name(each.name, "--name", ".+")
    except ValueError as error:
        raise BadConfiguration(f"{error}") from error
    before = foreign_scores(store)
    name = on.evaluation.name
    pairs = _make(site, display, on.run.name, on.label, {}, lambda: _prepared(on))
    table = pl.read_parquet(pairs.path() / "pairs.parquet")
    checked = [_checked(each, on, table, anyway=anyway) for each in systems]
    for given in checked:
        _check_name(given.name, name, on, pairs, before)
    for given in checked:
        _make(site, display, on.run.name, f"{SYSTEM}{given.name} {on.label}", _tags(given), partial(_scored, given, on))
        _remove_older(store, given, name, before)
    return [system_scores(store, f"{SYSTEM}{given.name}")[name] for given in checked]


def _tags(given: Translations) -> dict[str, str]:
    return {"system": given.name, "on": given.on, "files": given.files, "mlflow.source.name": "repro score"}


def _scored(given: Translations, on: NamedSet) -> Artifact:
    name = on.evaluation.name
    pairs = _prepared(on)
    received = receive.for_item(item_of(name, given.name))(given, pairs)
    return score.for_item(name)(received, pairs, name, on.run.corpus.target_language)


def score_lines(
    lines: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    language: str,
    label: str,
    *,
    anyway: bool = False,
) -> tuple[dict[str, Any], pl.DataFrame]:
    """The card of translations without any set, and a table with the scores of each sentence; stores nothing.

    ``sources`` may be empty, ``language``, that of the references, unknown. Raises BadData as ``score_systems`` does.
    """
    ids = [f"{number}" for number in range(1, len(references) + 1)]
    if sources and len(sources) != len(references):
        raise BadData(f"--source has {len(sources):,} lines, allowed is one for each of {len(references):,} references")
    ordered = in_set_order(lines, ids, label)
    _refuse([*doubts(ordered, references, sources)], label, anyway=anyway)
    read = {"source": list(sources)} if sources else {}
    table = pl.DataFrame({"pair_id": ids, **read, "reference": list(references), "hypothesis": ordered})
    return score_card(table, label, language)


def _prepared(on: NamedSet) -> Artifact:
    each = on.evaluation
    files = {text.file.path: text.file for text in (each.source, each.target)}
    archives = download.map(files, len(files))
    return prepare_sets.for_item(each.name)(each, *(archives[text.file.path] for text in (each.source, each.target)))


def _checked(read: ReadTranslations, on: NamedSet, table: pl.DataFrame, *, anyway: bool) -> Translations:
    """The translations in the order of the set. Raises BadData for doubts, all in one sentence."""
    lines = in_set_order(read.lines, table["pair_id"].to_list(), read.label)
    found = list(doubts(lines, table["target"].to_list(), table["source"].to_list()))
    _refuse(found, f"{read.label} for {on.label}", anyway=anyway)
    digest = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    return Translations(read.name, digest, tuple(lines), on.label, read.label)


def _refuse(found: Sequence[str], label: str, *, anyway: bool) -> None:
    """Raise BadData where there is a doubt."""
    if found and not anyway:
        raise BadData(f"nothing was scored of {label}: {'; '.join(found)} (--anyway scores them as they are)")


def _check_name(system: str, set_name: str, on: NamedSet, pairs: Artifact, before: Sequence[ForeignScore]) -> None:
    """Refuse a second set of the same name, as newstest2014 of another language is: it could not be told apart."""
    for each in before:
        same_name = each.name == f"{SYSTEM}{system}" and each.score.item == set_name
        if same_name and each.on != on.label and f"{pairs.stage}/{pairs.key}" not in each.score.inputs:
            message = f"--name is {system!r}, which has translations of another {set_name}, that of {each.on}"
            raise BadConfiguration(f"{message}; allowed is another name, such as {system}-{on.run.name}")


def _remove_older(store: Store, new: Translations, set_name: str, before: Sequence[ForeignScore]) -> None:
    """Remove what the system had of the set."""
    for each in before:
        older = each.translations.arguments["translations"]
        if (older["name"], each.score.item) == (new.name, set_name) and older["sha256"] != new.sha256:
            for made in (each.score, each.translations):
                store.remove(made.stage, made.key)


def _make(
    site: Site, display: Display, experiment: str, title: str, tags: Mapping[str, str], stages: Callable[[], Made]
) -> Made:
    """What the stages give, with those that are missing made in a run of MLflow."""
    store = open_store(site)
    planner = Planner(store, site, Scope(()))
    with engine(planner):
        stages()
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts")
    settings = RunSettings(store, site, Scope(()), display, tracker, plan=planner.lookups, files=stage_files)
    runner = Runner(settings)
    with closing(runner), ending(tracker), engine(runner):
        if any(row.state != "hit" for row in planner.rows):
            check_database(site.tracking)
            tracker.start(experiment, title, tags, {})
        return stages()
