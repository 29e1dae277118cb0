"""``repro translate``."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from cyclopts import Parameter

from flows.commands.options import EngineOption, QuantizationOption
from flows.inference.line_blocks import STDIO, fraction_read, line_blocks, open_input, open_output
from flows.views.terminal import say
from infra.errors import BadConfiguration, Fault
from infra.processes.compute import keep_pages
from infra.site import configured_site

TOKENS_PER_LINE = 4
"""A block has ``batch_pieces / TOKENS_PER_LINE`` lines. Most lines are longer, so a block fills several batches, and
lines of similar length are batched together."""
MOST_LINES = 8_192
"""Lines of the largest block: sorted by length they fill many batches, one for each thread."""

Value = TypeVar("Value")


def translate(
    input: Annotated[Path, Parameter(help="file to read; - for stdin", allow_leading_hyphen=True)] = STDIO,
    output: Annotated[Path, Parameter(help="file to write; - for stdout", allow_leading_hyphen=True)] = STDIO,
    *,
    model: Annotated[str, Parameter(help="NAME@alias, NAME/version; NAME: champion or else newest")] = "demo@champion",
    beam: Annotated[int | None, Parameter(help="beam size, 1 is greedy search; default: as in the model's run")] = None,
    alpha: Annotated[float | None, Parameter(help="exponent of the length penalty; default: that of the run")] = None,
    n_best: Annotated[int, Parameter(help="hypotheses per line, up to 2 x --beam - 1; above 1 implies --scores")] = 1,
    scores: Annotated[bool, Parameter(help="write one JSON object per line: source, hypotheses, scores")] = False,
    split: Annotated[
        Literal["long", "always", "never"],
        Parameter(help="when to split a line into sentences: if it is longer than any in training, always, or never"),
    ] = "always",
    engine: EngineOption = "auto",
    quantization: QuantizationOption = "float32",
) -> None:
    """Translate a file or stdin with a registered model, one output line per input line, as soon as each is done.

    Exit code 1 if a sentence is too long for the model: the message names its line, which stays empty in the output.
    All other lines are translated. A search ends when --beam hypotheses are finished, so an --n-best above --beam may
    return fewer.

    For example:

    echo "The old woman sees a dog." | repro translate --model demo@candidate

    repro translate in.txt out.txt --split never

    repro translate in.txt --n-best 4 --beam 8 > hypotheses.jsonl
    """
    from model.config import Decoding

    for path in (input, output):
        if path != STDIO and f"{path}".startswith("-"):
            raise BadConfiguration(f"unknown option {path}; for a file of this name write ./{path}")
    # Check all options before importing torch, which takes seconds.
    options: dict[str, Any] = {"beam": beam, "alpha": alpha}
    changed = {name: value for name, value in options.items() if value is not None}
    _valid(lambda: Decoding(**changed))
    if beam is not None:
        _valid(lambda: Decoding(beam=beam).check_n_best(n_best))
    from flows.inference.load_version import decoding_config, load_version
    from flows.runner.find_run import find_version
    from model.decoding.translation import Search

    site = configured_site()
    keep_pages()
    with open_input(input) as descriptor:
        version = find_version(model, site)
        decoding = replace(decoding_config(version), **changed)
        search = _valid(lambda: Search(decoding, n_best, split))
        loaded = load_version(version, site, engine, quantization)
        from flows.inference.translate_stream import RateDisplay, TranslationStream

        why_own = loaded.engine.why_own(search)
        if not why_own or engine == "ctranslate2" or quantization != "float32":
            searched_by = loaded.engine.name_for(search)
            say(f"{loaded.name} is searched by {searched_by}: {why_own or loaded.engine.opened.note}")
        stream = TranslationStream(
            lambda lines: loaded.translate(lines, search), loaded.trained_length, as_json=scores or n_best > 1
        )
        if os.isatty(descriptor):
            say(f"type lines to translate them with {version.label}; Ctrl-D ends")
        rate = RateDisplay()
        with open_output(output) as write:
            blocks = line_blocks(descriptor, loaded.translator.batch_pieces // TOKENS_PER_LINE, most=MOST_LINES)
            for answer in stream.translate_blocks(blocks):
                write(answer)
                rate.show(stream.lines, fraction_read(descriptor))
    for warning in stream.warnings:
        say(warning)
    if stream.untranslated.lines:
        raise Fault(f"{stream.untranslated}")


def _valid(make: Callable[[], Value]) -> Value:
    """Call ``make``. A ValueError becomes BadConfiguration with fields named as options."""
    try:
        return make()
    except ValueError as error:
        fields = r"\b(?:decoding\.|(?=n_best))(\w+)"
        message = re.sub(fields, lambda field: f"--{field[1].replace('_', '-')}", f"{error}")
        raise BadConfiguration(message) from error
