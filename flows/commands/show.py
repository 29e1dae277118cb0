"""``repro show``."""

import json
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption, SwapOption
from flows.runner.find_run import swapped_name
from flows.runs.completion import RUN_NAMES, OverridesOption
from flows.views.tables import size_text
from flows.views.terminal import print_json, print_text, say
from infra.errors import BadConfiguration
from infra.servers.environment import configure_libraries
from infra.site import Site
from tasks.durations import duration

if TYPE_CHECKING:
    from infra.tracking.model_version import Version

LONGEST = 100
"""Characters of a tag that are printed; of the decision, which is a sentence, all."""


def show(
    name: Annotated[
        str,
        RUN_NAMES,
        Parameter(
            help="a run, FILE.toml or FILE.py:NAME; RUN/STAGE or RUN/STAGE/ITEM, a key or its beginning, a raw file; "
            "a version such as demo@champion; default: list the runs"
        ),
    ] = "",
    /,
    *,
    path: Annotated[bool, Parameter(help="print only its folder, downloaded if it is in a bucket")] = False,
    artifacts: Annotated[bool, Parameter(help="list artifacts of the run, or of every run, the latest first")] = False,
    extends: Annotated[str, Parameter(help="for a run: print only what differs from this run, and `extends`")] = "",
    overrides: OverridesOption = (),
    swap: SwapOption = False,
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Show a run, an artifact or a version: its content, place, inputs, and everything made from it.

    A run is printed as TOML, each field with its meaning; `repro run FILE.toml` reads the same form. A version is shown
    with its source run, its tags and the moves of its model's aliases. The name of a stage means its newest recorded
    artifacts, one per item; --path prints one folder per line.

    For example:

    repro show multi30k-ende --set model.layers=6 --extends multi30k-ende > deeper.toml

    repro show demo/score/test

    repro show train.de

    ls $(repro show multi30k-ende/clean --path)
    """
    where = Site.named(site)
    if swap:
        name = swapped_name(name)
    if not name and (path or extends):
        raise BadConfiguration("--path and --extends need a name, such as demo/train or demo")
    given = [
        option
        for option, value in (("--path", path), ("--artifacts", artifacts), ("--extends", extends), ("--json", as_json))
        if value
    ]
    if len(given) > 1 and given != ["--artifacts", "--json"]:
        raise BadConfiguration(f"{' and '.join(given)} are given, allowed is one of them, or --artifacts with --json")
    if path:
        from flows.inspection.artifacts import folders_of

        configure_libraries(where.root)
        for folder in folders_of(name, where, overrides):
            print_text(folder)
    elif artifacts:
        _list_artifacts(name, where, overrides, as_json)
    elif not name:
        _list_runs(as_json)
    elif (shown := None if as_json else _toml(name, extends, overrides, where)) is not None:
        print(shown, end="")
    elif extends:
        raise BadConfiguration(f"--extends is {extends!r}, allowed is a run, and only for a run as TOML")
    else:
        from flows.inspection.artifacts import find_lineage
        from flows.views.lineage_view import lineage_text

        configure_libraries(where.root)
        found = find_lineage(name, where, overrides)
        details = _details(found.version, where, as_json) if found.version else {}
        print_text(json.dumps(found.as_json() | details, ensure_ascii=False) if as_json else lineage_text(found))


def _list_runs(as_json: bool) -> None:
    """Print the runs, one a line; the rows of Table 3 share a line."""
    from flows.runs import RUNS, VARIATIONS

    if as_json:
        print_json({"runs": {name: run.about for name, run in RUNS.items()}})
        return
    width = max(len(name) for name in RUNS)
    for name, run in RUNS.items():
        if name not in VARIATIONS:
            print(f"{name:{width}}  {run.about}")
    rows = ", ".join(name.removeprefix("wmt14-ende-") for name in VARIATIONS)
    print(f"{'wmt14-ende-ROW':{width}}  a row of Table 3, scored on newstest2013 by its last checkpoint: {rows}")


def _toml(name: str, extends: str, overrides: tuple[str, ...], site: Site) -> str | None:
    """Write the run of this name as TOML; None if no run has it, but something in the root may."""
    from flows.runner.artifact_names import is_version
    from flows.runner.find_run import extendable_name, find_run, is_file, split_name
    from flows.runner.recorded_runs import findable
    from flows.runner.systems import SYSTEM
    from flows.runs.overrides import override
    from flows.runs.toml_runs import toml_of

    if is_version(name) or name.startswith(SYSTEM) or split_name(name)[1]:
        return None
    try:
        run = find_run(findable(name, site.root))
    except BadConfiguration:
        if is_file(name):
            raise
        return None
    return toml_of(
        override(run, overrides), find_run(extends) if extends else None, extends and extendable_name(extends)
    )


def _details(version: "Version", site: Site, as_json: bool) -> dict[str, Any]:
    """Print scores, source run, tags and alias moves of a version; for JSON, return them with the run's parameters."""
    from flows.commands.models import version_json
    from infra.tracking.model_version import PROMOTION_TAG, grouped_tags, history
    from infra.tracking.registry import source_run, versions

    source = source_run(site.tracking, version)
    moves = history(versions(site.registry, version.name))
    if as_json:
        return {"version": {**version_json(version), "source": source, "history": [vars(move) for move in moves]}}
    tags = {tag: value for tag, value in grouped_tags(version.tags).items() if not tag.startswith(PROMOTION_TAG)}
    known = {field: value for field, value in source.items() if not field.startswith("params.")}
    lines = [version.line(), "", "source run", *(f"  {field}  {value}" for field, value in known.items())]
    lines += [] if source else [f"  {version.run_id or 'none'} (no longer in MLflow)"]
    lines += ["", "tags (in full, with the parameters of the run: --json)"]
    for tag, value in sorted(tags.items()):
        is_whole = len(value) <= LONGEST or tag == "decision"
        lines.append(f"  {tag}  {value if is_whole else f'{value[:LONGEST]} …'}")
    lines += ["", "aliases, newest move first"]
    lines += [f"  {move.when}  {move.alias} to version {move.version}  {move.why}" for move in moves]
    print_text("\n".join([*lines, ""]))
    return {}


def _list_artifacts(name: str, site: Site, overrides: tuple[str, ...], as_json: bool) -> None:
    from flows.inspection.artifacts import list_artifacts

    found = list_artifacts(name, site, overrides)
    if as_json:
        print_json({"artifacts": [each.as_json() for each in found]})
        return
    if not found:
        say("no run has a record here yet; start one with `repro run demo`")
    width = max((len(each.name) for each in found), default=0)
    for each in found:
        age = "" if each.age_seconds is None else duration(each.age_seconds)
        state = f"{each.state} ({each.why})" if each.why else each.state
        print_text(f"{each.name:{width}}  {each.key}  {size_text(each.bytes):>10}  {age:>12}  {state:7}  {each.path}")
