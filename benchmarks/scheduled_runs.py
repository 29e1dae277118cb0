"""Scheduled flow runs of a service: how late a worker starts them, how long they take, and the CPU seconds of it all.

``repro up`` runs in a temporary root, on SQLite or on PostgreSQL. A deployment of the flow ``reproduce`` gets flow runs
that are scheduled at equal distances within ``--minutes``. Each differs from the others in ``seed``, so none is a
duplicate, and all of its stages are cached: what is measured is Prefect, the worker and the start of a flow run.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT_ROOT))

from benchmarks.machine import aligned, between, parser, processor, provenance, spread, write_report  # noqa: E402
from infra.servers.loopback import free_ports  # noqa: E402
from infra.service.process_tags import tagged_pids  # noqa: E402

REPRO = [sys.executable, "-c", "from flows.cli import main; main()"]
UNTIL = "prepare_sets"
PATIENCE_SECONDS = 3600
POLL_SECONDS = 5.0
ATTEMPTS = 60
EXAMPLES = (
    "for example: python benchmarks/scheduled_runs.py --runs 50 --minutes 60\n"
    "             python benchmarks/scheduled_runs.py --database-url postgresql://user:password@127.0.0.1/bench"
)


def main(arguments: Sequence[str]) -> None:
    options = parser("scheduled_runs.py", __doc__, EXAMPLES)
    options.add_argument("--runs", type=int, default=50)
    options.add_argument("--minutes", type=float, default=60.0, help="time over which the runs are scheduled")
    options.add_argument("--database-url", default="", help="PostgreSQL for both servers; without it SQLite")
    asked = options.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="scheduled-runs-") as folder:
        os.environ |= {"REPRO_ROOT": folder, "PYTHONPATH": str(PROJECT_ROOT)}
        if asked.database_url:  # not in a command line, which others can read
            os.environ["REPRO_DATABASE_URL"] = asked.database_url
        repro("run", "demo", "--until", UNTIL)
        prefect, mlflow = free_ports(2)
        said = repro("up", "--gpu", "0", "--prefect-port", str(prefect), "--mlflow-port", str(mlflow))
        try:
            found = measure(Path(folder), exported(said, "PREFECT_API_URL"), asked.runs, asked.minutes)
        finally:
            repro("down")
    kept = [word for word in arguments if "://" not in word]
    report = {
        **provenance("scheduled_runs.py", kept, asked.commit),
        "processor": processor(),
        "database": "PostgreSQL" if asked.database_url else "SQLite",
        "runs": asked.runs,
        "minutes": asked.minutes,
        **found,
    }
    write_report(report, table, asked.json)


def measure(root: Path, api: str, count: int, minutes: float) -> dict[str, Any]:
    """Schedule the flow runs, wait until all have ended, and read what became of them."""
    os.environ["PREFECT_API_URL"] = api
    repro("deploy", "demo")
    deployment = request(f"{api}/deployments/name/reproduce/demo")["id"]
    before, began = cpu_seconds(root), datetime.now(UTC)
    for number in range(count):
        due = began + timedelta(minutes=minutes * number / count)
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": due.isoformat()}}
        parameters = {"run": "demo", "until": UNTIL, "overrides": [f"training.seed={number + 1}"]}
        body = {"parameters": parameters, "state": state}
        request(f"{api}/deployments/{deployment}/create_flow_run", body)
    chosen = {"deployments": {"id": {"any_": [deployment]}}, "sort": "EXPECTED_START_TIME_ASC", "limit": 200}
    deadline = time.monotonic() + minutes * 60 + PATIENCE_SECONDS
    while True:
        runs = request(f"{api}/flow_runs/filter", chosen)
        if all(run["end_time"] for run in runs) or time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    used = cpu_seconds(root) - before
    started = [run for run in runs if run["start_time"] and run["end_time"]]
    late = [seconds(run["expected_start_time"], run["start_time"]) for run in started]
    took = [seconds(run["start_time"], run["end_time"]) for run in started]
    states = [f"{run['state_name']}" for run in runs]
    return {
        "states": {name: states.count(name) for name in sorted(set(states))},
        "seconds_late": spread(late),
        "seconds": spread(took),
        "cpu_seconds_per_run": round(used / count, 2),
        "at_once": most_at_once(started),
        "task_runs_cached": statistics.mean(
            [request(f"{api}/task_runs/count", {"flow_runs": {"id": {"any_": [run["id"]]}}}) for run in started[:3]]
        ),
    }


def most_at_once(runs: Sequence[Mapping[str, Any]]) -> int:
    """How many of the runs were running at the same time at most."""
    changes = [(run["start_time"], 1) for run in runs] + [(run["end_time"], -1) for run in runs]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def cpu_seconds(root: Path) -> float:
    """CPU seconds of the service's processes and of the flow runs that ended in them."""
    total = 0.0
    for pid in tagged_pids(root / "service"):
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def exported(said: str, name: str) -> str:
    found = re.search(rf"^export {name}=(\S+)$", said, re.MULTILINE)
    assert found, said
    return found[1]


def request(address: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    for _ in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=120) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code != 503:  # SQLite is busy; Prefect's client asks again too
                raise
        time.sleep(1.0)
    raise SystemExit(f"{address} answered 503 {ATTEMPTS} times")


def repro(*words: str) -> str:
    """Run ``repro``; returns what it says. Ends this program if it fails."""
    done = subprocess.run([*REPRO, *words], capture_output=True, text=True, cwd=PROJECT_ROOT)
    if done.returncode:
        raise SystemExit(f"repro {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stderr


def table(report: Mapping[str, Any]) -> str:
    states = ", ".join(f"{count} {name}" for name, count in report["states"].items())
    rows = [
        ("ended as", states),
        ("seconds from the scheduled time to the start", between(report["seconds_late"], ".1f")),
        ("seconds from start to end", between(report["seconds"], ".1f")),
        ("CPU seconds a run, servers and worker included", f"{report['cpu_seconds_per_run']:.1f}"),
        ("at once, at most", f"{report['at_once']}"),
    ]
    title = f"{report['runs']} runs in {report['minutes']:g} min, {report['database']}; {report['processor']}"
    return "\n".join([title, *aligned(rows)])


if __name__ == "__main__":
    main(sys.argv[1:])
