"""``repro adopt``."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.commands.completion import RUN_NAMES
from flows.commands.options import JsonOption, OverridesOption, SiteOption
from flows.runner.request import RunRequest
from flows.views.tables import stage_table
from flows.views.terminal import console, say
from infra.servers.environment import configure_libraries


def adopt(
    stage: Annotated[str, Parameter(help="download, clean, learn_bpe or average")],
    path: Annotated[Path, Parameter(help="folder with the artifact's files, or its only file")],
    /,
    *,
    run: Annotated[str, RUN_NAMES, Parameter(help="name of the run, FILE.toml or FILE.py:NAME")],
    item: Annotated[str, Parameter(help="for download: the path of the file in the catalogue")] = "",
    force: Annotated[bool, Parameter(negative=(), help="replace an artifact that exists")] = False,
    overrides: OverridesOption = (),
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Seal existing work as the artifact that a run would make: cleaned text, a tokenizer, weights, a downloaded file.

    The files are checked for their form and copied; that they are what the run would make is your word. The artifact,
    the plan and the model version say "adopted from PATH, by USER, on DATE". `repro run RUN --force STAGE` makes it.

    For example:

    repro adopt learn_bpe old/tokenizer.json --run multi30k-ende

    repro adopt average exported/weights --run demo --set training.updates=200
    """
    from flows.runner.adopt import adopt as seal

    resolved = RunRequest(run, overrides=overrides, site=site).resolve()
    configure_libraries(resolved.site.root)
    outcome = seal(resolved, stage, path, item, replace=force, say=say)
    console().print(stage_table(outcome.rows))
    hits = sum(row.state == "hit" for row in outcome.rows)
    todo = [f"{row.stage} {row.item}".strip() for row in outcome.rows if row.state != "hit"]
    say(f"{path} is the {stage} of {outcome.run} now; {hits} stages are hits, to run: {', '.join(todo) or 'none'}")
    if as_json:
        print(json.dumps(outcome.as_json(), ensure_ascii=False))
