"""Measures how long one sentence takes by each search engine: ``python benchmarks/latency.py --help``.

Both engines as ``repro serve`` calls them, and ``ctranslate2.Translator`` called directly, translate each sentence in
turn, in one process. Times are milliseconds by the clock and by CPU seconds of all threads.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import aligned, parser, run_program, settings
from benchmarks.versions import sentences, version

EXAMPLES = """examples:
  REPRO_ROOT=.repro python benchmarks/latency.py --model demo@champion
  python benchmarks/latency.py --size base --sentences 50 --json
"""
WARM_UP = 3
ENGINES = ("own", "ctranslate2", "peer")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = parser("latency.py", "Time of one sentence by each search engine.", EXAMPLES)
    flags.add_argument("--model", default="", help="a registered version, as in demo@champion")
    flags.add_argument("--size", default="small", help="without --model: random weights (tiny, small, base)")
    flags.add_argument("--sentences", type=int, default=200)
    flags.add_argument("--words", type=int, default=12, help="of a sentence (12)")
    flags.add_argument("--file", default="", help="the sentences are its lines of --words words (random words)")
    flags.add_argument("--beam", type=int, default=4)
    flags.add_argument("--threads", type=int, default=1)
    return flags.parse_args(arguments)


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the whole report."""
    chosen = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="latency-") as scratch:
        translate = engines(chosen, Path(scratch) / "version")
        texts = sentences(chosen.file, chosen.words, chosen.seed)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ENGINES}
        for number in range(-WARM_UP, chosen.sentences):
            text = next(texts)
            for name in ENGINES if number % 2 else reversed(ENGINES):
                begun = time.perf_counter()
                cpu = time.process_time()
                translate[name](text)
                if number >= 0:
                    times[name].append((time.perf_counter() - begun, time.process_time() - cpu))
    return {
        **settings("latency.py", arguments, chosen),
        "milliseconds": {
            name: {kind: percentiles([each[n] for each in times[name]]) for n, kind in enumerate(("wall", "cpu"))}
            for name in ENGINES
        },
    }


def engines(chosen: argparse.Namespace, folder: Path) -> dict[str, Callable[[str], object]]:
    """Functions that translate a sentence, by the name of the engine."""
    from dataclasses import replace

    from model.decoding.search_engine import SearchEngine
    from model.decoding.translation import Search
    from model.export.ctranslate2_search import CTranslate2Search

    fast = version(chosen, "ctranslate2", folder)
    own = replace(fast, engine=SearchEngine(fast.translator))
    search = Search(replace(fast.decoding, beam=chosen.beam), split="never")
    assert isinstance(fast.engine.other, CTranslate2Search)
    exported = fast.engine.other.folder
    ids = exported.target.get_vocab()

    def peer(text: str) -> str:
        tokens = exported.source.encode(text, add_special_tokens=False).tokens
        [found] = exported.model.translate_batch([tokens], beam_size=chosen.beam, max_decoding_length=len(tokens) + 10)
        return str(exported.target.decode([ids[piece] for piece in found.hypotheses[0]]))

    return {
        "own": lambda text: own.translate([text], search),
        "ctranslate2": lambda text: fast.translate([text], search),
        "peer": peer,
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return {f"p{p}": round(1000 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 3) for p in (50, 99)}


def table(report: Mapping[str, Any]) -> str:
    """Format the report."""
    what = (
        f"{report['model'] or report['size']}, beam {report['beam']}, {report['sentences']} sentences of "
        f"{report['words']} words, one at a time; {report['device']}, {report['threads']} thread(s)"
    )
    rows = [["engine", "CPU ms p50", "p99", "wall ms p50", "p99"]]
    for name, kinds in report["milliseconds"].items():
        rows.append([name, *(f"{kinds[kind][p]:.2f}" for kind in ("cpu", "wall") for p in ("p50", "p99"))])
    return "\n".join([what, *aligned(rows)])


if __name__ == "__main__":
    run_program(measure, table, parse)
