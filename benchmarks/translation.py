"""Measures the translation of blocks of lines: ``python benchmarks/translation.py --help``.

``repro`` is what ``repro translate --split never`` and, with blocks of one line, ``repro serve`` do; ``own`` searches
without CTranslate2; the peer calls ``ctranslate2.Translator`` with the same exported model, tokenizers and threads. All
read text and write text, in turn, in one process.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import (
    CLOCKS,
    aligned,
    between,
    parser,
    percentiles,
    ratios,
    run_program,
    settings,
    spread,
    timed,
)
from benchmarks.versions import sentences, version

EXAMPLES = """examples:
  REPRO_ROOT=.repro python benchmarks/translation.py --model multi30k-ende@champion --file in.txt --workers 2
  python benchmarks/translation.py --size base --lines 1 --rounds 400 --engines repro,own,peer
  python benchmarks/translation.py --size base --lines 500 --json
"""
WARM_UP = 3
"""Rounds before the first that counts."""
WARM_UP_LINES = 500
"""The most lines of such a round."""
PEER_TOKENS = 1_024
"""Source tokens of the peer's batches, as many as here."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = parser("translation.py", "Speed of repro translate and of CTranslate2 called directly.", EXAMPLES)
    flags.add_argument("--model", default="", help="a registered version, as in demo@champion")
    flags.add_argument("--size", default="small", help="without --model: random weights (tiny, small, base)")
    flags.add_argument("--file", default="", help="text to translate; default: random words")
    flags.add_argument("--lines", type=int, default=2_000, help="of a round (2,000)")
    flags.add_argument("--words", type=int, default=12, help="of a random line (12)")
    flags.add_argument("--beam", type=int, default=4)
    flags.add_argument("--threads", type=int, default=1, help="of a batch (1)")
    flags.add_argument("--workers", type=int, default=1, help="batches at once (1)")
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--engines", default="repro,peer", help="of repro, own and peer (repro,peer)")
    chosen = flags.parse_args(arguments)
    chosen.engines = chosen.engines.split(",")
    return chosen


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the whole report."""
    chosen = parse(arguments)
    lines = text(chosen)
    found: dict[str, list[str]] = {}
    seconds: dict[str, dict[str, list[float]]] = {name: {clock: [] for clock in CLOCKS} for name in chosen.engines}
    with tempfile.TemporaryDirectory(prefix="translation-") as scratch:
        translate = engines(chosen, Path(scratch) / "version")
        for number in range(-WARM_UP, chosen.rounds):
            block = list(islice(lines, chosen.lines if number >= 0 else min(chosen.lines, WARM_UP_LINES)))
            for name in chosen.engines if number % 2 else reversed(chosen.engines):
                found[name], took = timed(lambda name=name, block=block: translate[name](block))  # type: ignore[misc]
                for clock in CLOCKS if number >= 0 else ():
                    seconds[name][clock].append(took[clock])
    rates = {
        name: {clock: [chosen.lines / each for each in seconds[name][clock]] for clock in CLOCKS} for name in seconds
    }
    equal = sum(len(set(same)) == 1 for same in zip(*found.values(), strict=True)) / chosen.lines
    return {
        **settings("translation.py", arguments, chosen),
        "equal": equal,
        "rates": {name: {clock: spread(of[clock]) for clock in CLOCKS} for name, of in rates.items()},
        "milliseconds": {name: {clock: percentiles(of[clock]) for clock in CLOCKS} for name, of in seconds.items()},
        "ratios": ratios(rates),
    }


def text(chosen: argparse.Namespace) -> Iterator[str]:
    """Yield the lines to translate, without end."""
    if chosen.file:
        return cycle([line.strip() for line in Path(chosen.file).read_text().splitlines()])
    # All of one length: random weights seldom write eos, and the peer has one greatest length for all outputs.
    return sentences("", chosen.words, chosen.seed)


def engines(chosen: argparse.Namespace, folder: Path) -> dict[str, Callable[[Sequence[str]], list[str]]]:
    """Functions that translate lines, by name."""
    from dataclasses import replace

    from model.decoding.search_engine import SearchEngine
    from model.decoding.translation import Search
    from model.export.ctranslate2_form import CTranslate2Search

    fast = version(chosen, "ctranslate2", folder, chosen.workers)
    slow = replace(fast, engine=SearchEngine(fast.translator))
    other = fast.engine.opened.other
    assert isinstance(other, CTranslate2Search)
    exported = other.folder
    ids = exported.target.get_vocab()
    decoding = replace(fast.decoding, beam=chosen.beam)
    search = Search(decoding, split="never")

    def peer(lines: Sequence[str]) -> list[str]:
        tokens = [each.tokens for each in exported.source.encode_batch(list(lines), add_special_tokens=False)]
        longest = max(map(len, tokens)) + decoding.max_extra
        limits = {"beam_size": chosen.beam, "max_decoding_length": longest}
        if len(tokens) == 1:
            found = exported.model.translate_batch(tokens, **limits)
        else:
            batches = {"max_batch_size": PEER_TOKENS, "batch_type": "tokens"}
            found = exported.model.translate_iterable(iter(tokens), **batches, **limits)
        written = [[ids[piece] for piece in each.hypotheses[0]] for each in found]
        return [str(each) for each in exported.target.decode_batch(written)]

    return {
        "repro": lambda lines: [line.hypotheses[0].text for line in fast.translate(lines, search)],
        "own": lambda lines: [line.hypotheses[0].text for line in slow.translate(lines, search)],
        "peer": peer,
    }


def table(report: Mapping[str, Any]) -> str:
    """Format the report."""
    what = (
        f"{report['model'] or report['size']}, beam {report['beam']}, {report['rounds']} rounds of {report['lines']} "
        f"line(s), {report['workers']} worker(s) of {report['threads']} thread(s); {report['device']}; "
        f"{report['equal']:.1%} of the last translations are equal"
    )
    rows = [["", "lines/s", "lines/CPU s", "ms p50", "p99", "CPU ms p50", "p99"]]
    for name, rates in report["rates"].items():
        times = [f"{report['milliseconds'][name][clock][p]:.2f}" for clock in CLOCKS for p in ("p50", "p99")]
        rows.append([name, *(between(rates[clock], ",.1f") for clock in CLOCKS), *times])
    compared = [f"{names}: {between(ratio['cpu'], '.2f')} by CPU seconds" for names, ratio in report["ratios"].items()]
    return "\n".join([what, *aligned(rows), *compared])


if __name__ == "__main__":
    run_program(measure, table, parse)
