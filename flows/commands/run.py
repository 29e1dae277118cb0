"""``repro run``."""

import os
import sys
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import Parameter
from rich.console import RenderableType
from rich.text import Text

from flows.commands.options import JsonOption, RunOptions
from flows.inspection.check import compare_files
from flows.orchestration.dispatch import dispatch, has_user_server
from flows.runner.group import GroupFailed
from flows.runner.outcome import Outcome, StageFailed, stage_folder
from flows.runner.request import ResolvedRun, make_plan
from flows.runner.seeds import parse_seeds, run_seeds
from flows.runs.recorded_results import recorded_sums
from flows.views.stage_words import outcome_json
from flows.views.tables import score_card, score_table, seed_table, stage_table
from flows.views.terminal import print_json, say, show
from infra.errors import BadConfiguration
from infra.guards.shown_text import shown
from infra.servers.environment import configure_libraries
from infra.servers.relocation import same_folder
from infra.site import Site, open_store
from infra.tracking.client import experiment_page
from tasks.evaluation.seed_spread import is_own


def run(
    asked: RunOptions,
    *,
    seeds: Annotated[str, Parameter(help="run once per seed and compare the results, for example 1,2,3")] = "",
    every: Annotated[
        bool, Parameter(name="--all-scores", help="show the scores by every protocol, not only the headlines")
    ] = False,
    promote_better: Annotated[
        bool,
        Parameter(help="make the version champion if its dev score is at least the champion's, significant or not"),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run every stage of a run that is not cached: from its text to a registered, scored model version.

    Ctrl-C and `repro stop` save a last checkpoint and end the run. The same command resumes it.

    For example:

    repro run demo

    repro run demo --from train

    repro run demo --set training.updates=200 --until average

    repro run multi30k-ende --set "filters.rules=+Distinct(on=source),-Identical" --set filters.normalise.quotes=true

    repro run demo --seeds 1,2,3

    repro run my_runs.py:TINY --json
    """
    resolved = asked.request().resolve()  # reports a wrong argument before a server starts
    several = parse_seeds(seeds) if seeds else ()
    if promote_better and (resolved.is_modified or asked.until not in ("", "register")):
        raise BadConfiguration("--promote-better is given, allowed is that for a whole run without --set")
    if promote_better and several and (own := resolved.run.training.seed) not in several:
        raise BadConfiguration(f"--promote-better is given, allowed is that with the run's own seed {own} in --seeds")
    if every and several:
        raise BadConfiguration("--all-scores is given, allowed is that without --seeds")
    configure_libraries(resolved.site.root)
    if several:
        _run_seeds(resolved, several, promote_better, as_json)
        return
    try:
        outcome = dispatch(make_plan(resolved))
    except StageFailed as failed:
        if as_json:
            print_json(outcome_json(failed.outcome))
        raise
    promoted = _promote(outcome, resolved, by_score=True) if promote_better else []  # before stdout may close
    recorded = recorded_sums(resolved.run)
    kind = f"strict numerics, torch here is {version('torch')}"
    numerics = compare_files(outcome.rows, open_store(resolved.site), recorded, kind)
    said = [*promoted, *(f"numerics: {each}" for each, _ in numerics)]
    show(*_results(outcome, resolved, every), *said, result=outcome_json(outcome) if as_json else None)


def _promote(outcome: Outcome, resolved: ResolvedRun, *, by_score: bool) -> list[str]:
    """Make the run's version champion if its seeds or its score justify it; return a line about it."""
    from flows.inspection.promotion import promote

    label = "" if resolved.is_modified else outcome.model_version
    said = label and promote(label, resolved.run.min_champion_bleu, resolved.site, by_score=by_score)
    return [f"champion: {said}"] if said else []


def _run_seeds(resolved: ResolvedRun, seeds: tuple[int, ...], promote_better: bool, as_json: bool) -> None:
    """Run all seeds and compare them. Raises GroupFailed at the end if a seed failed."""
    results = run_seeds(resolved, seeds, dispatch, say)
    own = results.outcomes.get(f"{resolved.run.training.seed}")
    said = _promote(own, resolved, by_score=False) if own else []
    if own and promote_better:
        said += _promote(own, resolved, by_score=True)
    show("", seed_table(seeds, results.spreads()), *said, result=results.as_json() if as_json else None)
    if results.failure:
        raise GroupFailed(results)


def _results(outcome: Outcome, resolved: ResolvedRun, every: bool) -> list[RenderableType]:
    """List stages, scores, a few translations, and the next commands and addresses."""
    found: list[RenderableType] = ["", stage_table(outcome.rows)]
    if outcome.own_scores:
        found += ["", (score_table if every else score_card)(outcome.own_scores)]
        if not every:
            found.append(Text("scores by every protocol: the same command with --all-scores, or the report", "dim"))
    if spreads := outcome.seed_spreads(resolved.run.training.seed):
        found += ["", seed_table(sorted(resolved.run.decoding.ensemble), spreads)]
    found += _samples(outcome, resolved.site)
    if remarks := outcome.remarks(resolved.run.dev):
        found += ["", *(f"warning: {remark}" for remark in remarks)]
    return [*found, *_where_to_look(outcome, resolved.site)]


def _samples(outcome: Outcome, site: Site) -> list[str]:
    """Choose three random sentences of the last scored set: source, reference, hypothesis."""
    import polars as pl

    scored = [row for row in outcome.rows if row.stage == "score" and is_own(row.item) and row.path]
    if not scored:
        return []
    table = pl.read_parquet(stage_folder(scored[-1], site) / "sentences.parquet")
    lines = []
    for row in table.sample(min(3, len(table)), seed=1).iter_rows(named=True):
        lines += ["", *(f"  {name:10}  {shown(row[name])}" for name in ("source", "reference", "hypothesis"))]
    return lines


def _where_to_look(outcome: Outcome, site: Site) -> list[str]:
    programs = quote(f"{Path(sys.executable).parent}")
    tracking = site.tracking
    page = experiment_page(tracking, outcome.run)
    command = f"{programs}/mlflow ui --backend-store-uri {quote(tracking)}   then http://127.0.0.1:5000/{page}"
    mlflow = f"{tracking.rstrip('/')}/{page}" if tracking.startswith(("http://", "https://")) else command
    home = os.environ.get("PREFECT_HOME", "")
    # Not `prefect server start`: any web page can control it. The service shows the data of this root.
    in_root = same_folder(Path(home), site.root.absolute() / "prefect")
    prefect = f"{programs}/repro up   then http://127.0.0.1:4200" if in_root else f"recorded in {home}"
    if has_user_server():
        prefect = os.environ.get("PREFECT_API_URL", "").removesuffix("/api") or "the configured server"
    lines = ["", f"mlflow:  {mlflow}", f"prefect: {prefect}"]
    reports = [row for row in outcome.rows if row.stage == "report" and row.path]
    lines += [f"report:  {stage_folder(row, site) / 'report.html'}" for row in reports]
    for row in outcome.rows:
        if decision := row.facts.get("decision", ""):
            lines.append(f"version: {row.facts['name']}/{row.facts['version']}, when registered: {decision}")
    if outcome.model_version:
        lines.append(f"model:   {programs}/repro translate --model {outcome.model_version} < in.txt > out.txt")
    return lines
