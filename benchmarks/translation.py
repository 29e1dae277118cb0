"""Measures the translation of many lines: ``python benchmarks/translation.py --help``.

``repro`` is what ``repro translate --split never`` does with a block of lines; the peer calls
``ctranslate2.Translator.translate_iterable`` with the same exported model, tokenizers and threads. Both read text and
write text, in turn, in one process.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import aligned, between, parser, run_program, settings, spread
from benchmarks.versions import sentences, version

EXAMPLES = """examples:
  REPRO_ROOT=.repro python benchmarks/translation.py --model multi30k-ende@champion --file in.txt --workers 2
  python benchmarks/translation.py --size base --lines 500 --json
"""
ENGINES = ("repro", "peer")
WARM_UP = 1_000
"""Lines translated before the first round."""
PEER_TOKENS = 1_024
"""Source tokens of the peer's batches, as many as here."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = parser("translation.py", "Speed of repro translate and of CTranslate2 called directly.", EXAMPLES)
    flags.add_argument("--model", default="", help="a registered version, as in demo@champion")
    flags.add_argument("--size", default="small", help="without --model: random weights (tiny, small, base)")
    flags.add_argument("--file", default="", help="text to translate; default: random words")
    flags.add_argument("--lines", type=int, default=2_000, help="of a round, at most (2,000)")
    flags.add_argument("--words", type=int, default=12, help="of a random line (12)")
    flags.add_argument("--beam", type=int, default=4)
    flags.add_argument("--workers", type=int, default=1, help="batches at once, each by one thread")
    flags.add_argument("--rounds", type=int, default=3)
    chosen = flags.parse_args(arguments)
    chosen.threads = 1
    return chosen


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the whole report."""
    chosen = parse(arguments)
    lines = text(chosen)
    found: dict[str, list[str]] = {}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ENGINES}
    with tempfile.TemporaryDirectory(prefix="translation-") as scratch:
        translate = engines(chosen, Path(scratch) / "version")
        for number in range(-1, chosen.rounds):  # the first warms up
            for name in ENGINES if number % 2 else reversed(ENGINES):
                begun = time.perf_counter()
                cpu = time.process_time()
                found[name] = translate[name](lines if number >= 0 else lines[:WARM_UP])
                if number >= 0:
                    times[name].append((time.perf_counter() - begun, time.process_time() - cpu))
    rates = {
        kind: {name: [len(lines) / each[n] for each in times[name]] for name in ENGINES}
        for n, kind in enumerate(("lines_per_second", "lines_per_cpu_second"))
    }
    return {
        **settings("translation.py", arguments, chosen),
        "translated": len(lines),
        "equal": sum(a == b for a, b in zip(*(found[name] for name in ENGINES), strict=True)) / len(lines),
        **{kind: {name: spread(values) for name, values in each.items()} for kind, each in rates.items()},
        "ratios": {
            kind: spread([a / b for a, b in zip(each["repro"], each["peer"], strict=True)])
            for kind, each in rates.items()
        },
    }


def text(chosen: argparse.Namespace) -> list[str]:
    """The lines to translate."""
    if chosen.file:
        return [line.strip() for line in Path(chosen.file).read_text().splitlines()][: chosen.lines]
    # All of one length: random weights seldom write eos, and the peer has one greatest length for all outputs.
    return list(islice(sentences("", chosen.words, chosen.seed), chosen.lines))


def engines(chosen: argparse.Namespace, folder: Path) -> dict[str, Callable[[Sequence[str]], list[str]]]:
    """Functions that translate lines, by name."""
    from dataclasses import replace

    from model.decoding.translation import Search
    from model.export.ctranslate2_search import CTranslate2Search

    fast = version(chosen, "ctranslate2", folder, chosen.workers)
    assert isinstance(fast.engine.other, CTranslate2Search)
    exported = fast.engine.other.folder
    ids = exported.target.get_vocab()
    decoding = replace(fast.decoding, beam=chosen.beam)
    search = Search(decoding, split="never")

    def repro(lines: Sequence[str]) -> list[str]:
        return [line.hypotheses[0].text for line in fast.translate(lines, search)]

    def peer(lines: Sequence[str]) -> list[str]:
        encoded = exported.source.encode_batch(list(lines), add_special_tokens=False)
        tokens = [each.tokens for each in encoded]
        found = exported.model.translate_iterable(
            iter(tokens),
            max_batch_size=PEER_TOKENS,
            batch_type="tokens",
            beam_size=chosen.beam,
            max_decoding_length=max(map(len, tokens)) + decoding.max_extra,
        )
        written = [[ids[piece] for piece in each.hypotheses[0]] for each in found]
        return [str(each) for each in exported.target.decode_batch(written)]

    return {"repro": repro, "peer": peer}


def table(report: Mapping[str, Any]) -> str:
    """Format the report."""
    what = (
        f"{report['model'] or report['size']}, beam {report['beam']}, {report['translated']} lines, "
        f"{report['workers']} worker(s) of one thread, {report['rounds']} rounds; {report['device']}; "
        f"{report['equal']:.1%} of the translations are equal"
    )
    rows = [["", "lines/CPU s", "lines/s"]]
    kinds = ("lines_per_cpu_second", "lines_per_second")
    for name in ENGINES:
        rows.append([name, *(between(report[kind][name], ",.1f") for kind in kinds)])
    rows.append(["repro, times", *(between(report["ratios"][kind], ".2f") for kind in kinds)])
    return "\n".join([what, *aligned(rows)])


if __name__ == "__main__":
    run_program(measure, table, parse)
