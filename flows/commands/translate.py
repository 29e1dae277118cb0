"""``repro translate``."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Parameter

from flows.inference.line_blocks import STDIO, fraction_read, line_blocks, open_input, open_output
from flows.views.terminal import say
from infra.errors import BadConfiguration, Fault
from infra.processes.malloc import keep_pages
from infra.servers.environment import configure_libraries
from infra.site import Site

if TYPE_CHECKING:
    from infra.tracking.registry import Version
    from model.decoding.sentence_splitting import SentenceSplitter
    from model.decoding.translator import Translator

PIECES_OF_A_LINE = 4
"""A block has a line for each so many pieces of a batch: with longer lines, as most are, it fills several batches, in
which lines of like length come together."""
LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*")

Value = TypeVar("Value")


def translate(
    input: Annotated[Path, Parameter(help="file to read; - is stdin", allow_leading_hyphen=True)] = STDIO,
    output: Annotated[Path, Parameter(help="file to write; - is stdout", allow_leading_hyphen=True)] = STDIO,
    *,
    model: Annotated[str, Parameter(help="NAME@alias, NAME/version or NAME")] = "demo@champion",
    beam: Annotated[
        int | None, Parameter(help="hypotheses kept at each step, 1 is greedy; else as its run did")
    ] = None,
    alpha: Annotated[float | None, Parameter(help="exponent of the length penalty; else as its run did")] = None,
    beta: Annotated[float | None, Parameter(help="weight of the coverage penalty; else as its run did")] = None,
    n_best: Annotated[int, Parameter(help="hypotheses of each line, up to --beam; above 1 as with --scores")] = 1,
    scores: Annotated[
        bool, Parameter(negative=(), help="a JSON object for each line: source, hypotheses, scores")
    ] = False,
    sample: Annotated[
        bool, Parameter(negative=(), help="draw each piece by its probability in place of a search")
    ] = False,
    temperature: Annotated[float, Parameter(help="of --sample: below 1 the likely become likelier")] = 1.0,
    top_k: Annotated[int, Parameter(help="of --sample: only the so many likeliest pieces; 0 is all")] = 0,
    top_p: Annotated[float, Parameter(help="of --sample: only the likeliest that reach this probability")] = 1.0,
    seed: Annotated[int, Parameter(help="of --sample")] = 1,
    split: Annotated[
        Literal["long", "always", "never"],
        Parameter(help="split a line into sentences if it is longer than what training saw, always, or never"),
    ] = "always",
    language: Annotated[
        str, Parameter(help="ISO 639-1 code by whose rules lines are split; else the version's source language")
    ] = "",
) -> None:
    """Translate lines with a registered model: as many come out as go in, in their order, as soon as they are done.

    Exit code 1: a sentence was too long for the model; it is named and its line left empty, all others are translated.

    For example:

    echo "The old woman sees a dog." | repro translate --model demo@candidate

    repro translate in.txt out.txt --split never

    repro translate in.txt --n-best 4 --beam 8 > hypotheses.jsonl

    repro translate in.txt --sample --temperature 0.7 --seed 2
    """
    from model.config import Decoding, Sampling

    for path in (input, output):
        if path != STDIO and f"{path}".startswith("-"):
            raise BadConfiguration(f"unknown option {path} (a file of this name is ./{path})")
    # Torch takes seconds: what cannot be is said before.
    typed: dict[str, Any] = {"beam": beam, "alpha": alpha, "beta": beta}
    typed = {name: value for name, value in typed.items() if value is not None}
    _valid(lambda: Decoding(**typed))
    if beam is not None:
        _check_n_best(n_best, beam)
    sampling = _valid(lambda: Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed))
    chosen = {**typed, "n_best": n_best} if sample else vars(sampling)
    usual = {"n_best": 1} if sample else vars(Sampling())
    for name, value in chosen.items():
        if value != usual.get(name):
            raise BadConfiguration(
                f"{_typed(name)} is {value}, allowed {'without' if sample else 'with'} --sample only"
            )
    if language and (split == "never" or not LANGUAGE.fullmatch(language)):
        allowed = "without --split never only" if split == "never" else "is an ISO 639-1 code such as de"
        raise BadConfiguration(f"--language is {language!r}, allowed {allowed}")
    from flows.inference.version_config import decoding_config

    site = Site.named()
    configure_libraries(site.root)
    keep_pages()
    with open_input(input) as descriptor:
        version = _resolved(model, site)
        decoding = replace(decoding_config(version), **typed)
        _check_n_best(n_best, decoding.beam)
        translator = _load(version, site)
        from flows.inference.translate_stream import RateDisplay, TranslationStream
        from model.decoding.lines import LineTranslator, Splitting, beam_searcher, sampler
        from model.decoding.sentence_splitting import unsplit

        search = sampler(translator, sampling, decoding) if sample else beam_searcher(translator, decoding, n_best)
        seen = min(int(version.tags.get("max_pieces", translator.longest_source)), translator.longest_source)
        parts = _sentences(version, language)
        lines = LineTranslator(translator, search, Splitting(split, parts, seen), n_best)
        stream = TranslationStream(
            lines.translate, lines.too_long, seen, parts if split == "long" else unsplit, as_json=scores or n_best > 1
        )
        if os.isatty(descriptor):
            say(f"{version.name}/{version.version} translates each line that you type here; Ctrl-D ends")
        pace = RateDisplay()
        with open_output(output) as file:
            for answer in stream.translate_blocks(line_blocks(descriptor, translator.batch_pieces // PIECES_OF_A_LINE)):
                file.write(answer)
                file.flush()
                pace.show(stream.lines, fraction_read(descriptor))
        pace.end()
    for remark in stream.warnings:
        say(remark)
    if stream.too_long.lines:
        raise Fault(f"{stream.too_long}")


def _check_n_best(n_best: int, beam: int) -> None:
    if not 1 <= n_best <= beam:
        raise BadConfiguration(f"--n-best is {n_best}, allowed is 1 to --beam, which is {beam}")


def _resolved(words: str, site: Site) -> "Version":
    from infra.tracking.registry import resolve

    return resolve(site.tracking, words)


def _load(version: "Version", site: Site) -> "Translator":
    from infra.tracking.registry import local_folder
    from model.decoding.translator import Translator

    folder = local_folder(site.tracking, version)
    return Translator.load(folder / "weights", folder / "vocabulary", device=site.device, threads=site.threads_each)


def _sentences(version: "Version", language: str) -> "SentenceSplitter":
    """How this version's source language is split; what is only supposed is said when it first matters."""
    from model.decoding.sentence_splitting import DEFAULT_LANGUAGE, splitter

    known = language or version.tags.get("source_language", "")
    split = splitter(known or DEFAULT_LANGUAGE)

    @cache
    def suppose() -> None:
        name = f"{version.name}/{version.version}"
        say(f"{name} does not say its source language: lines are split as English is (--language names another)")

    def supposed(line: str) -> Sequence[str]:
        found = split(line)
        if len(found) > 1:
            suppose()
        return found

    return split if known else supposed


def _valid(make: Callable[[], Value]) -> Value:
    """What ``make`` gives; raises BadConfiguration that names a field as it is typed here."""
    try:
        return make()
    except ValueError as error:
        said = re.sub(r"\b(?:decoding|sampling)\.(\w+)", lambda field: _typed(field[1]), f"{error}")
        raise BadConfiguration(said) from error


def _typed(field: str) -> str:
    return f"--{field.replace('_', '-')}"
