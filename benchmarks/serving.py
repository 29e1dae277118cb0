"""Measures ``repro serve`` as it is, unbatched, and by the own engine: ``python benchmarks/serving.py --help``.

Each server is a process with the same model. Concurrent clients (1, 8 and 32) send one sentence after another. The
servers take turns within a round, so that all see the same load of the machine. Besides sentences per second, the
report has the clients' p50 and p99 and the CPU milliseconds that the server spends on a sentence.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import (
    PROJECT_ROOT,
    aligned,
    between,
    parser,
    percentiles,
    restart_as_job,
    settings,
    spread,
    write_report,
)
from benchmarks.versions import sentences, version

EXAMPLES = """examples:
  REPRO_ROOT=.repro python benchmarks/serving.py --model demo@champion
  python benchmarks/serving.py --size base --seconds 60 --json
"""
WAYS: dict[str, dict[str, Any]] = {"served": {}, "unbatched": {"batch": 1, "gather_seconds": 0.0}, "own": {}}
"""Limits of each server. All search by CTranslate2, except ``own``."""


class Load(NamedTuple):
    """What clients got from a server, and what it cost."""

    rate: float
    """Sentences per second."""
    p50: float
    """Milliseconds of a request."""
    p99: float
    cpu: float
    """CPU milliseconds of the server for a sentence."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = parser(
        "serving.py", "Load on repro serve as it is, unbatched, and by the own engine, taking turns.", EXAMPLES
    )
    flags.add_argument("--model", default="", help="a registered version, as in demo@champion")
    flags.add_argument(
        "--size", default="small", help="without --model: random weights of this shape (tiny, small, base)"
    )
    flags.add_argument(
        "--ways",
        default="served,unbatched,own",
        help=f"of the servers {', '.join(WAYS)}, which to compare (served,unbatched,own)",
    )
    flags.add_argument("--clients", default="1,8,32", help="how many ask at once (1,8,32)")
    flags.add_argument("--seconds", type=float, default=10.0, help="of each measurement (10)")
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--words", type=int, default=12, help="of a sentence (12)")
    flags.add_argument("--file", default="", help="the sentences are its lines of --words words (random words)")
    flags.add_argument("--beam", type=int, default=4)
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument(
        "--quantization", choices=("float32", "int8"), default="float32", help="of CTranslate2 (float32)"
    )
    flags.add_argument("--serve", choices=tuple(WAYS), default="", help=argparse.SUPPRESS)
    chosen = flags.parse_args(arguments)
    chosen.clients = [int(number) for number in chosen.clients.split(",")]
    chosen.ways = chosen.ways.split(",")
    if unknown := set(chosen.ways).difference(WAYS):
        flags.error(f"--ways has {', '.join(sorted(unknown))}, allowed are {', '.join(WAYS)}")
    return chosen


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the whole report. Raises RuntimeError if a server does not start or a request fails."""
    chosen = parse(arguments)
    servers = {way: started(way, arguments) for way in chosen.ways}
    done: dict[str, dict[int, list[Load]]] = {way: {n: [] for n in chosen.clients} for way in chosen.ways}
    try:
        urls = {way: address(process) for way, process in servers.items()}
        for number in range(-1, chosen.rounds):  # the first warms up
            for clients in chosen.clients:
                for way in chosen.ways if number % 2 else reversed(chosen.ways):
                    before = cpu_seconds(servers[way].pid)
                    answered = asyncio.run(load(urls[way], clients, chosen, chosen.seed + number))
                    if number >= 0:
                        done[way][clients].append(summary(answered, cpu_seconds(servers[way].pid) - before, chosen))
    finally:
        for process in servers.values():
            process.terminate()
            process.communicate()
    return {
        **settings("serving.py", arguments, chosen),
        "rates_done": {way: {n: [each.rate for each in loads] for n, loads in by.items()} for way, by in done.items()},
        **{
            name: {way: {n: spread([getattr(each, name) for each in by[n]]) for n in by} for way, by in done.items()}
            for name in Load._fields
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


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def summary(answered: Sequence[float], cpu: float, chosen: argparse.Namespace) -> Load:
    """The load of requests that took so many seconds each."""
    return Load(len(answered) / chosen.seconds, **percentiles(answered), cpu=1000 * cpu / len(answered))


async def load(url: str, clients: int, chosen: argparse.Namespace, seed: int) -> list[float]:
    """Return the seconds of each request that so many clients send."""
    import httpx

    texts = sentences(chosen.file, chosen.words, seed)

    async def one(client: httpx.AsyncClient, end: float) -> list[float]:
        answered = []
        while (begun := time.perf_counter()) < end:
            response = await client.post(f"{url}/api/translate", json={"text": next(texts), "beam": chosen.beam})
            if response.status_code != 200:
                raise RuntimeError(f"{response.status_code}: {response.text}")
            answered.append(time.perf_counter() - begun)
        return answered

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        end = time.perf_counter() + chosen.seconds  # opening the client takes a while on a busy machine
        answered = await asyncio.gather(*(one(client, end) for _ in range(clients)))
        return [seconds for each in answered for seconds in each]


def serve(chosen: argparse.Namespace) -> None:
    """Run a server until SIGTERM."""
    from flows.web.app import application
    from flows.web.batching import Batcher
    from flows.web.limits import Limits
    from flows.web.served_version import ServedVersion
    from flows.web.server import Server, address, bind_socket
    from infra.tracking.model_version import Version

    limits = Limits(**WAYS[chosen.serve])
    bound = bind_socket("127.0.0.1", 0)
    with tempfile.TemporaryDirectory(prefix="serving-") as scratch:
        engine = "own" if chosen.serve == "own" else "ctranslate2"
        folder = Path(scratch) / "version"
        workers = 1
        if engine == "ctranslate2":
            workers = chosen.threads
            chosen.threads = 1
        served = version(chosen, engine, folder, workers, quantization=chosen.quantization)
        where = address("127.0.0.1", bound)
        name = Version("served", 1, datetime.now(UTC), (), {}, "", "")
        page = application([ServedVersion(name, served)], Batcher(limits))
        Server(page, limits, lambda: print(where, flush=True)).run(sockets=[bound])


def table(report: Mapping[str, Any]) -> str:
    """Format the report."""
    what = (
        f"{report['model'] or report['size']}, beam {report['beam']}, sentences of {report['words']} words, "
        f"{report['rounds']} rounds of {report['seconds']:g} s; {report['device']}, {report['threads']} thread(s), "
        f"{report['quantization']}"
    )
    rows = [["clients", "server", "sentences/s", "p50 ms", "p99 ms", "server's CPU ms a sentence"]]
    for clients in report["clients"]:
        for way in report["ways"]:
            values = (between(report[name][way][clients], ",.1f") for name in Load._fields)
            rows.append([f"{clients}", way, *values])
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
