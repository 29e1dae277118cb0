"""``repro score``."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.commands.options import JsonOption
from flows.views.tables import score_card, score_table
from flows.views.terminal import TerminalDisplay, console, print_json, say
from infra.errors import BadConfiguration
from infra.site import configured_site, open_store
from model.metric_names import BLEU, CHRF
from tasks.corpus.catalogue import COMPRESSED

if TYPE_CHECKING:
    from tasks.stages.receive import Translations

STDIN = "-"
CARD = "card.json"


def score(
    *files: Annotated[
        str,
        Parameter(
            help="translations: a line for each sentence, two columns with the ids of the set (.tsv), or WMT's .sgm or "
            ".xml; perhaps .gz; - for stdin",
            allow_leading_hyphen=True,
        ),
    ],
    on: Annotated[str, Parameter(help="the set that they translate, RUN/SET as in demo/test")] = "",
    name: Annotated[
        tuple[str, ...],
        Parameter(
            help="name of the system, or one for each file; files of one name are joined in their order; default: as "
            "the file is called",
            negative=(),
            show_default=False,
        ),
    ] = (),
    references: Annotated[
        Path | None, Parameter(help="score against this file, without any run; nothing is stored")
    ] = None,
    source: Annotated[Path | None, Parameter(help="with --references: the sentences that were translated")] = None,
    language: Annotated[
        str, Parameter(help="with --references: their language, as in de, for the protocols that need to know it")
    ] = "",
    anyway: Annotated[bool, Parameter(help="score lines that are empty or seem to be others", negative=())] = False,
    forget: Annotated[str, Parameter(help="remove what is stored of a system, by its name")] = "",
    every: Annotated[bool, Parameter(name="--all", help="show the scores by every protocol", negative=())] = False,
    as_json: JsonOption = False,
) -> None:
    """Score translations that something else made, by the same protocols as those of a run.

    They are stored beside the runs: `repro compare demo/2 system:google` compares them, `repro models --systems` and
    the site list them, MLflow has a run of them. Translations by the same name take the place of earlier ones.

    For example:

    repro score google.txt --on demo/test

    repro score google.txt deepl.sgm.gz --on multi30k-ende/test2016

    other-toolkit < test.en | repro score - --on multi30k-ende/test2016 --name other

    repro score hypotheses.txt --references newstest2014.de --source newstest2014.en --language de
    """
    from flows.runner import systems as stored
    from flows.runner.score_systems import score_lines, score_systems
    from tasks.corpus.translations import read_side
    from tasks.stages.score import score_facts

    site = configured_site()
    store = open_store(site)
    if forget:
        sets = stored.forget(store, f"{stored.SYSTEM}{forget}")
        say(f"{forget} is forgotten: its translations of {', '.join(sets)} were removed")
        return
    if bool(on) == bool(references) or (on and (source or language)):
        raise BadConfiguration(
            "allowed is either --on, as in --on demo/test, or --references with --source, --language"
        )
    given = _read(files, name)
    if references:
        expected = read_side(references, "ref")
        sources = read_side(source, "src") if source else []
        cards = {}
        for each in given:
            card, table = score_lines(each, expected, sources, language, anyway=anyway)
            cards[each.name] = card | {"each_sentence": table.select("pair_id", BLEU, CHRF).to_dicts()}
        facts: Mapping[str, Mapping[str, Any]] = {system: score_facts(card) for system, card in cards.items()}
    else:
        found = score_systems(on, given, site, TerminalDisplay(), anyway=anyway)
        cards = {each.name: json.loads((store.artifact(each.score).path() / CARD).read_text()) for each in found}
        facts = {f"{each.on} {each.name}": each.facts for each in found}
        say(f"stored; `repro compare {on.rpartition('/')[0]} {found[0].name}` compares it with the run")
    console().print((score_table if every else score_card)(facts))
    if as_json:
        print_json(cards)


def _read(files: Sequence[str], names: Sequence[str]) -> list["Translations"]:
    """The lines of each system, in the order of their names."""
    from tasks.corpus.translations import read_side
    from tasks.stages.receive import Translations

    if wrong := [file for file in files if file.startswith("-") and file != STDIN]:
        raise BadConfiguration(f"unknown option {wrong[0]}; for a file of this name write ./{wrong[0]}")
    given = [*names] * (len(files) if len(names) == 1 else 1) or [*map(_name_of, files)]
    if not files or len(given) != len(files):
        raise BadConfiguration(f"{len(files)} files have {len(names)} names, allowed is one name, or one for each file")
    systems: dict[str, Translations] = {}
    for file, name in zip(files, given, strict=True):
        path = Path("/dev/stdin" if file == STDIN else file)
        before = systems.get(name, Translations(name))
        label = ", ".join(filter(None, (before.files, path.name)))
        systems[name] = Translations(name, lines=(*before.lines, *read_side(path, wanted=name)), files=label)
    return [*systems.values()]


def _name_of(file: str) -> str:
    """The name of a file without its endings of compression and format: ``online-a`` of ``online.a.de.gz``."""
    if file == STDIN:
        raise BadConfiguration("--name is missing, allowed is a name for the translations of stdin")
    return Path(file.removesuffix(next(filter(file.endswith, COMPRESSED), ""))).stem.replace(".", "-")
