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
    from flows.runner.score_systems import ReadTranslations

STDIN = "-"


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
    from flows.runner.score_systems import NamedSet, score_systems
    from flows.runner.systems import SYSTEM
    from flows.runner.systems import forget as forget_system

    if forget:
        sets = forget_system(open_store(configured_site()), f"{SYSTEM}{forget.removeprefix(SYSTEM)}")
        say(f"{forget} is forgotten: its translations of {', '.join(sets)} were removed")
        return
    if bool(on) == bool(references):
        raise BadConfiguration(
            "--on and --references are both given or both missing, allowed is one, as in --on demo/test"
        )
    if on and (source or language):
        raise BadConfiguration("--source and --language go with --references; the set of --on has its own")
    chosen = NamedSet.parse(on) if on else None
    systems = _read(files, name)
    if chosen:
        site = configured_site()
        found = score_systems(chosen, systems, site, TerminalDisplay(), anyway=anyway)
        _show({f"{each.on} {each.name}": each.facts for each in found}, every)
        say(f"stored; `repro compare {chosen.run.name} {found[0].name}` compares it with the run")
        store = open_store(site)
        results = {
            each.name: json.loads((store.artifact(each.score).path() / "card.json").read_text()) for each in found
        }
    elif references:
        results = _score_files(systems, references, source, language, anyway, every)
    if as_json:
        print_json(results)


def _score_files(
    systems: Sequence["ReadTranslations"],
    references: Path,
    source: Path | None,
    language: str,
    anyway: bool,
    every: bool,
) -> dict[str, Any]:
    """Score and show systems without any run; gives their cards with the scores of each sentence, by name."""
    from flows.runner.score_systems import score_lines
    from tasks.corpus.translations import read_side
    from tasks.stages.score import score_facts

    expected = read_side(references, "ref")
    sources = read_side(source, "src") if source else []
    made = {
        each.name: score_lines(each.lines, expected, sources, language, each.label, anyway=anyway) for each in systems
    }
    _show({system: score_facts(card) for system, (card, _) in made.items()}, every)
    columns = ("pair_id", BLEU, CHRF)
    return {
        system: {**card, "each_sentence": table.select(columns).to_dicts()} for system, (card, table) in made.items()
    }


def _read(files: Sequence[str], names: Sequence[str]) -> list["ReadTranslations"]:
    """The lines of each system, in the order of their names."""
    from flows.runner.score_systems import ReadTranslations
    from tasks.corpus.translations import read_side

    if wrong := [file for file in files if file.startswith("-") and file != STDIN]:
        raise BadConfiguration(f"unknown option {wrong[0]}; for a file of this name write ./{wrong[0]}")
    given = list(names) * (len(files) if len(names) == 1 else 1) or [_name_of(file) for file in files]
    if not files or len(given) != len(files):
        raise BadConfiguration(
            f"{len(files)} files and {len(names)} names are given, allowed is one name, or one a file"
        )
    systems: dict[str, tuple[list[str], list[str]]] = {}
    for file, name in zip(files, given, strict=True):
        path = Path("/dev/stdin" if file == STDIN else file)
        labels, lines = systems.setdefault(name, ([], []))
        labels.append(path.name)
        lines += read_side(path, wanted=name)
    return [ReadTranslations(name, ", ".join(labels), lines) for name, (labels, lines) in systems.items()]


def _name_of(file: str) -> str:
    """The name of a file without its last ending, and that of compression: ``google`` of ``google.de.gz``."""
    if file == STDIN:
        raise BadConfiguration("--name is missing, allowed is a name for the translations of stdin")
    packed = [packed for packed in COMPRESSED if file.endswith(packed)]
    return Path(file.removesuffix(packed[0]) if packed else file).stem


def _show(scores: Mapping[str, Mapping[str, Any]], every: bool) -> None:
    error = console()
    error.print((score_table if every else score_card)(scores))
