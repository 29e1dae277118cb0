"""Seconds of ``repro`` with its root in a bucket and in a folder, which take turns, and requests to the bucket.

The bucket must exist; the usual AWS variables name its server. Every round has a prefix of its own there.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT_ROOT))

from benchmarks.machine import aligned, between, parser, run_program, settings, spread  # noqa: E402

COUNTED = """
import atexit, collections, json, os
if os.environ["REPRO_ROOT"].startswith("s3:"):
    from aiobotocore.endpoint import AioEndpoint
    requests, send = collections.Counter(), AioEndpoint._do_get_response
    async def counted(self, request, operation, context):
        requests[operation.name] += 1
        return await send(self, request, operation, context)
    AioEndpoint._do_get_response = counted
    atexit.register(lambda: open(os.environ["REQUESTS"], "w").write(json.dumps(requests)))
from flows.cli import main
main()
"""
"""``repro``, which writes at its end how often it sent each request, repeated ones too."""
OTHER = "from a second cache: "
EXAMPLES = "for example: python benchmarks/bucket.py s3://benchmark/here --repeat 3"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("bucket.py", __doc__, EXAMPLES)
    options.add_argument("address", help="s3://bucket/prefix")
    options.add_argument("--run", default="demo")
    options.add_argument("--until", default="shard")
    options.add_argument("--repeat", type=int, default=3, help="rounds; the median counts")
    return options.parse_args(arguments)


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the whole report."""
    asked = parse(arguments)
    run = ("run", asked.run, "--until", asked.until)
    commands = {"the run": run, "the run, all cached": run, "verify": ("verify",), "gc": ("gc",)}
    others = {f"{OTHER}the run, all cached": run, f"{OTHER}verify": ("verify",)}
    found: dict[str, dict[str, list[float]]] = {}
    requests: dict[str, dict[str, int]] = {}
    for _ in range(asked.repeat):
        with tempfile.TemporaryDirectory(prefix="bucket-") as folder:
            bucket = f"{asked.address}/{uuid.uuid4().hex[:8]}"
            for name, words in (commands | others).items():
                cache = Path(folder, "other" if name in others else "one")
                for place in ("folder", "bucket")[name in others :]:
                    root = bucket if place == "bucket" else f"{folder}/root"
                    seconds, requests[name] = measured(root, cache, words)
                    found.setdefault(f"{name}, {place}", {"wall": [], "cpu": []})["wall"].append(seconds["wall"])
                    found[f"{name}, {place}"]["cpu"].append(seconds["cpu"])
    seconds_by_clock = {name: {clock: spread(each) for clock, each in both.items()} for name, both in found.items()}
    return {**settings("bucket.py", arguments, asked), "seconds": seconds_by_clock, "requests": requests}


def measured(root: str, cache: Path, words: Sequence[str]) -> tuple[dict[str, float], dict[str, int]]:
    """The seconds of a command and of what it starts, and its requests by their names."""
    with tempfile.NamedTemporaryFile("w+") as counts, tempfile.TemporaryFile("w+") as said:
        places = {"REPRO_ROOT": root, "REPRO_CACHE": f"{cache}", "REQUESTS": counts.name}
        environment = {**os.environ, **places, "PYTHONPATH": f"{PROJECT_ROOT}"}
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-c", COUNTED, *words], env=environment, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if process.returncode:
            raise SystemExit(f"repro {' '.join(words)} ended with {process.returncode}: {said.read()[-2000:]}")
        sent: dict[str, int] = json.loads(counts.read() or "{}")
        return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime}, sent


def table(report: Mapping[str, Any]) -> str:
    rows = [("command, root", "wall s", "CPU s")]
    rows += [
        (name, between(both["wall"], ".1f"), between(both["cpu"], ".1f")) for name, both in report["seconds"].items()
    ]
    counts = [
        f"{name}: {sum(sent.values())} requests ({', '.join(f'{count} {each}' for each, count in sent.items())})"
        for name, sent in report["requests"].items()
    ]
    return "\n".join([report["device"], *aligned(rows), *counts])


if __name__ == "__main__":
    run_program(measure, table, parse)
