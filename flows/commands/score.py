"""``repro score``."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption
from flows.views.tables import score_card, score_table
from flows.views.terminal import TerminalDisplay, say, show
from infra.errors import BadConfiguration
from infra.site import configured_site, open_store
from tasks.corpus.catalogue import COMPRESSED

STDIN = "-"


def score(
    *files: Annotated[
        str,
        Parameter(
            help="translations: plain text, .tsv with ids of the set, or WMT's .sgm or .xml; perhaps .gz; - for stdin",
            allow_leading_hyphen=True,
        ),
    ],
    on: Annotated[str, Parameter(help="the set that they translate, RUN/SET as in demo/test")] = "",
    name: Annotated[str, Parameter(help="name of the system; default: the name of the file", show_default=False)] = "",
    references: Annotated[Path | None, Parameter(help="score against this file, without a run; stores nothing")] = None,
    language: Annotated[str, Parameter(help="with --references: their language, such as de")] = "",
    anyway: Annotated[bool, Parameter(help="score even lines that are empty or seem misplaced")] = False,
    forget: Annotated[
        str, Parameter(help="remove the stored translations of this system, of all sets or of --on")
    ] = "",
    every: Annotated[bool, Parameter(name="--all-scores", help="show the scores by every protocol")] = False,
    as_json: JsonOption = False,
) -> None:
    """Score translations of another system by the protocols of a run, and store them.

    `repro compare demo/2 system:google` compares them, `repro models --systems` and the site list them. New
    translations replace earlier ones of the same name.

    For example:

    other-toolkit < test.en | repro score - --on demo/test --name other

    repro score hypotheses.txt --references newstest2014.de --language de
    """
    from flows.runner.score_systems import score_file, score_systems
    from flows.runner.systems import SYSTEM, system_scores
    from tasks.stages.score import score_facts

    site = configured_site()
    store = open_store(site)
    if forget:
        if files or references or name:
            raise BadConfiguration("--forget is given, allowed beside it is only --on, as in --on demo/test")
        stored = system_scores(store, f"{SYSTEM}{forget}").values()
        chosen = [each for each in stored if on in ("", each.on)]
        if not chosen:
            raise BadConfiguration(f"--on is {on!r}, allowed is {', '.join(each.on for each in stored)}")
        for each in chosen:
            each.remove(store)
            say(f"removed the translations of {each.on} by {forget}")
        return
    if bool(on) == bool(references) or (on and language):
        raise BadConfiguration("allowed is either --on, as in --on demo/test, or --references, perhaps with --language")
    given = _by_system(files, name)
    if references:
        cards = {each: score_file(each, path, references, language, anyway=anyway) for each, path in given.items()}
    else:
        found = score_systems(on, given, site, TerminalDisplay(), anyway=anyway)
        cards = {
            each.name: json.loads((store.artifact(each.score).path() / "card.json").read_bytes()) for each in found
        }
        say(f"stored; `repro compare {found[0].on.rpartition('/')[0]} {found[0].name}` compares it with a run")
    facts = {each: score_facts(card) for each, card in cards.items()}
    show((score_table if every else score_card)(facts), result=cards if as_json else None)


def _by_system(files: tuple[str, ...], name: str) -> dict[str, Path]:
    """Map each system to its file; without ``name``, ``online.a.de.gz`` is of ``online-a``."""
    if STDIN in files and not name:
        raise BadConfiguration("--name is missing, allowed is a name for the translations of stdin")
    found = {}
    for file in files:
        unpacked = file.removesuffix(next(filter(file.endswith, COMPRESSED), ""))
        found[name or Path(unpacked).stem.replace(".", "-")] = Path("/dev/stdin" if file == STDIN else file)
    if not files or len(found) < len(files):
        raise BadConfiguration(f"{len(files)} files are given, allowed is one or more, each of its own name")
    return found
