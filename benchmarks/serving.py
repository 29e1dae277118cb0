"""Measures the sentences per second of ``repro serve``, batched and unbatched: ``python benchmarks/serving.py --help``.

Each server is a process with the same model. Concurrent clients (1, 8 and 32) send one sentence after another. The two
servers take turns within a round, so that both see the same load of the machine.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import (
    ALLOCATOR,
    PROJECT_ROOT,
    aligned,
    between,
    parser,
    processor,
    provenance,
    restart_as_job,
    spread,
    write_report,
)

EXAMPLES = """examples:
  REPRO_ROOT=.repro python benchmarks/serving.py --model demo@champion
  python benchmarks/serving.py --size base --seconds 60 --json
"""
WAYS = {"batched": {}, "unbatched": {"batch": 1, "gather_seconds": 0.0}}
WORD_LIST = "the a old young woman man dog cat house sees reads buys book apple red small town children teacher not"
WORDS = WORD_LIST.split()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = parser("serving.py", "Load on repro serve, batched and unbatched, taking turns.", EXAMPLES)
    flags.add_argument("--model", default="", help="a registered version, as in demo@champion")
    flags.add_argument(
        "--size", default="small", help="without --model: random weights of this shape (tiny, small, base)"
    )
    flags.add_argument("--clients", default="1,8,32", help="how many ask at once (1,8,32)")
    flags.add_argument("--seconds", type=float, default=10.0, help="of each measurement (10)")
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--words", type=int, default=12, help="of a sentence (12)")
    flags.add_argument("--beam", type=int, default=4)
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--serve", choices=tuple(WAYS), default="", help=argparse.SUPPRESS)
    chosen = flags.parse_args(arguments)
    chosen.clients = [int(number) for number in chosen.clients.split(",")]
    return chosen


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the whole report. Raises RuntimeError if a server does not start or a request fails."""
    chosen = parse(arguments)
    servers = {way: started(way, arguments) for way in WAYS}
    done: dict[str, dict[int, list[float]]] = {way: {n: [] for n in chosen.clients} for way in WAYS}
    try:
        urls = {way: address(process) for way, process in servers.items()}
        for number in range(-1, chosen.rounds):  # the first warms up
            for clients in chosen.clients:
                for way in WAYS if number % 2 else reversed(WAYS):
                    rate = asyncio.run(load(urls[way], clients, chosen, chosen.seed + number))
                    if number >= 0:
                        done[way][clients].append(rate)
    finally:
        for process in servers.values():
            process.terminate()
            process.communicate()
    return {
        **provenance("serving.py", arguments, chosen.commit),
        "device": processor(),
        "allocator": ALLOCATOR,
        **{name: value for name, value in vars(chosen).items() if name not in ("json", "serve", "commit")},
        "rates_done": done,
        "rates": {way: {n: spread(rates) for n, rates in by.items()} for way, by in done.items()},
        "ratios": {
            n: spread([a / b for a, b in zip(done["batched"][n], done["unbatched"][n], strict=True)])
            for n in chosen.clients
        },
    }


def started(way: str, arguments: Sequence[str]) -> "subprocess.Popen[str]":
    command = [sys.executable, str(Path(__file__).resolve()), *arguments, "--serve", way]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT_ROOT)


def address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    url = process.stdout.readline().strip()
    if not url.startswith("http://"):
        raise RuntimeError(f"a server did not start: {url}")
    return url


async def load(url: str, clients: int, chosen: argparse.Namespace, seed: int) -> float:
    """Return the sentences per second that so many clients receive."""
    import httpx

    draw = random.Random(seed)
    end = time.perf_counter() + chosen.seconds

    async def one(client: httpx.AsyncClient) -> int:
        answered = 0
        while time.perf_counter() < end:
            text = " ".join(draw.choice(WORDS) for _ in range(chosen.words)) + "."
            response = await client.post(f"{url}/api/translate", json={"text": text, "beam": chosen.beam})
            if response.status_code != 200:
                raise RuntimeError(f"{response.status_code}: {response.text}")
            answered += 1
        return answered

    limits = httpx.Limits(max_connections=clients)
    begun = time.perf_counter()
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        answered = sum(await asyncio.gather(*(one(client) for _ in range(clients))))
    return answered / (time.perf_counter() - begun)


def serve(chosen: argparse.Namespace) -> None:
    """Run a server until SIGTERM."""
    from flows.inference.served_model import load_version
    from flows.inference.served_model import select_versions as versions
    from infra.site import Site
    from infra.web.app import application
    from infra.web.limits import Limits
    from infra.web.server import address, bind_socket
    from infra.web.server import serve as serve_until_stopped

    limits = Limits(**WAYS[chosen.serve])  # type: ignore[arg-type]
    bound = bind_socket("127.0.0.1", 0)
    if chosen.model:
        site = Site.named()
        served = load_version(versions([chosen.model], site)[0], site, "own")
    else:
        served = random_version(chosen)
    where = address("127.0.0.1", bound)
    serve_until_stopped(application([served], limits), bound, limits, lambda: print(where, flush=True))


def random_version(chosen: argparse.Namespace) -> Any:
    """Return a model with random weights and a vocabulary learnt from the clients' words, padded to the shape's size.

    Outputs have up to ten tokens more than their source, since random weights seldom write eos.
    """
    import pyarrow as pa
    import torch
    from tokenizers import AddedToken, Tokenizer

    from benchmarks.comparison import SIZES
    from flows.inference.served_model import ServedVersion
    from model.config import Decoding
    from model.data.bpe import TokenizerPair
    from model.decoding.sentence_splitting import splitter
    from model.decoding.translator import Translator
    from model.export.search_engine import SearchEngine
    from model.network.transformer import Transformer
    from tasks.stages.learn_bpe import Vocabulary, train_tokenizer

    torch.set_num_threads(chosen.threads)
    torch.manual_seed(chosen.seed)
    shape, size = SIZES[chosen.size]
    found: Tokenizer = train_tokenizer([pa.array([WORD_LIST] * 4)], Vocabulary(size=300, min_frequency=1))
    fill = size - found.get_vocab_size()
    found.add_tokens([AddedToken(f"qx{number}xq", normalized=False) for number in range(fill)])
    vocabulary = TokenizerPair(found, found, joint=True)
    model = Transformer(shape, vocabulary.source_size, vocabulary.target_size).eval()
    translator = Translator(model, vocabulary, torch.device("cpu"))
    decoding = Decoding(beam=chosen.beam, max_extra=10)
    engines = SearchEngine(translator)
    return ServedVersion("random/1", (), ("en", "de"), decoding, translator, splitter("en"), engines)


def table(report: Mapping[str, Any]) -> str:
    """Format the report."""
    what = (
        f"{report['model'] or report['size']}, beam {report['beam']}, sentences of {report['words']} words, "
        f"{report['rounds']} rounds of {report['seconds']:g} s; {report['device']}, {report['threads']} thread(s)"
    )
    rows = [["clients", "batched, sentences/s", "unbatched", "batched, times"]]
    for clients in report["clients"]:
        rates = [between(report["rates"][way][clients], ",.1f") for way in WAYS]
        rows.append([f"{clients}", *rates, between(report["ratios"][clients], ".2f")])
    return "\n".join([what, *aligned(rows)])


def main() -> None:
    restart_as_job()
    arguments = sys.argv[1:]
    chosen = parse(arguments)
    if chosen.serve:
        serve(chosen)
        return
    write_report(measure(arguments), table, chosen.json)


if __name__ == "__main__":
    main()
