"""Scores translations of other systems with the same stage, score card and artifacts as for runs."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from flows.runner.find_run import find_run, split_name
from flows.runner.recorded_runs import findable
from flows.runner.stages_alone import make
from flows.runner.systems import SYSTEM, ForeignScore, foreign_scores, system_scores
from flows.runs import Run
from flows.runs.unknown_names import did_you_mean
from infra.errors import BadConfiguration, BadData
from infra.guards.path_names import is_plain_name
from infra.site import Site, open_store
from infra.store.store import Artifact
from model.metric_names import BLEU, CHRF
from tasks.corpus.catalogue import EvaluationSet
from tasks.corpus.translations import read_side, read_translations
from tasks.engine.progress import Display
from tasks.evaluation.doubts import doubts
from tasks.evaluation.seed_spread import item_of
from tasks.stages.download import download
from tasks.stages.prepare_sets import prepare_sets
from tasks.stages.receive import Translations, receive
from tasks.stages.score import lines_digest, score, score_card


def score_systems(
    on: str, files: Mapping[str, Path], site: Site, display: Display, *, anyway: bool = False
) -> list[ForeignScore]:
    """Score translations of the set ``on`` by system; replaces stored translations of the same systems.

    Raises BadConfiguration for an unknown set, BadData for a wrong number of lines and, unless ``anyway``, for any
    doubt; then it stores nothing.
    """
    run_name, _ = split_name(on)
    run = find_run(findable(run_name, site.root))
    sets = {f"{run_name}/{each.name}": each for each in run.sets}
    if on not in sets:
        raise BadConfiguration(f"--on is {on!r}{did_you_mean(on, sets) or ','} allowed is {', '.join(sets)}")
    evaluation = sets[on]
    title = f"{run.name}/{evaluation.name}"
    store = open_store(site)
    if wrong := [name for name in files if not is_plain_name(name)]:
        raise BadConfiguration(f"--name is {wrong[0]!r}, allowed is a word of letters, digits, '_' and '-'")
    known = [each for each in foreign_scores(store) if each.name.removeprefix(SYSTEM) in files]
    if same := [each.on for each in known if each.score.item == evaluation.name and each.on != title]:
        raise BadConfiguration(f"--name has translations of another {evaluation.name}, {same[0]}: choose another name")
    pairs = make(site, display, run.name, title, {}, partial(_prepared, evaluation))
    table = pl.read_parquet(pairs.path() / "pairs.parquet").rename({"target": "reference"})
    given = {}
    for name, path in files.items():
        lines = tuple(_checked_lines(name, path, table, anyway=anyway))
        given[f"{SYSTEM}{name}"] = Translations(name, lines_digest(lines), lines, path.name, title)
    for name, each in given.items():
        tags = {"system": each.name, "on": title, "files": each.files, "mlflow.source.name": "repro score"}
        make(site, display, run.name, f"{name} {title}", tags, partial(_scored, each, evaluation, run))
    for old in known:
        if old.on == title and given[old.name].sha256 != old.translations.arguments["translations"]["sha256"]:
            old.remove(store)
    return [system_scores(store, name)[evaluation.name] for name in given]


def score_file(name: str, path: Path, references: Path, language: str, *, anyway: bool = False) -> dict[str, Any]:
    """Return the score card of a file, with scores per sentence. Raises BadData as ``score_systems``."""
    expected = read_side(references, "ref")
    ids = [f"{number}" for number in range(1, len(expected) + 1)]
    table = pl.DataFrame({"pair_id": ids, "reference": pl.Series(expected, dtype=pl.String)})
    lines = _checked_lines(name, path, table, anyway=anyway)
    card, scored = score_card(table.with_columns(hypothesis=pl.Series(lines, dtype=pl.String)), path.name, language)
    return card | {"each_sentence": scored.select("pair_id", BLEU, CHRF).to_dicts()}


def _prepared(evaluation: EvaluationSet) -> Artifact:
    sides = [text.file for text in (evaluation.source, evaluation.target)]
    archives = download.map({file.path: file for file in sides}, len(sides))
    return prepare_sets.for_item(evaluation.name)(evaluation, *(archives[file.path] for file in sides))


def _scored(given: Translations, evaluation: EvaluationSet, run: Run) -> Artifact:
    pairs = _prepared(evaluation)
    received = receive.for_item(item_of(evaluation.name, given.name))(given, pairs)
    return score.for_item(evaluation.name)(received, pairs, evaluation.name, run.corpus.target_language)


def _checked_lines(name: str, path: Path, table: pl.DataFrame, *, anyway: bool) -> list[str]:
    """Read the translations in the order of the set. Raises BadData for a wrong number of lines, or with all doubts."""
    lines = read_translations(path, table["pair_id"].to_list(), name)
    references = table["reference"].to_list()
    if len(lines) != len(references):
        raise BadData(f"{path.name} has {len(lines):,} lines, allowed are {len(references):,}: one for each pair")
    sources = table["source"].to_list() if "source" in table else []
    if not anyway and (found := "; ".join(doubts(lines, references, sources))):
        raise BadData(f"nothing was scored of {path.name}: {found} (--anyway scores them as they are)")
    return lines
