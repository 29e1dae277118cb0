"""Many runs at once: in one root beside ``repro gc --delete``, and on two machines that share a bucket."""

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from s3_server import Server
from services import artifact_digests
from small_pipeline import start_small

from flows.commands.gc import gc
from infra.store.s3_client import Bucket

pytestmark = pytest.mark.slow
SECONDS = 900.0


def states(processes: Iterable[subprocess.Popen[str]]) -> list[list[tuple[str, str, str]]]:
    """Let the held processes go together; (stage, item, state) of each one's stages. All must succeed."""
    held = list(processes)
    for process in held:
        print(file=process.stdin, flush=True)
    found = []
    for process in held:
        out, said = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, said
        found.append([(stage, item, state) for stage, item, state in json.loads(out)])
    return found


def test_eight_runs_beside_gc_make_each_stage_once(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ways to decode two trainings; what a run has made or found stays while another process collects garbage."""
    root = mirror.parent / "shared"
    ended = threading.Event()
    monkeypatch.setenv("REPRO_ROOT", f"{root}")

    def collect() -> int:
        rounds = 0
        while not ended.wait(0.05):
            gc(delete=True)
            rounds += 1
        return rounds

    settings = [
        (f"training.updates={updates}", f"decoding.beam={beam}") for updates in (80, 120) for beam in range(1, 5)
    ]
    with ExitStack() as stack:
        runs = [
            stack.enter_context(start_small(mirror, root, hold=True, until="score", overrides=chosen))
            for chosen in settings
        ]
        with ThreadPoolExecutor(1) as pool:
            rounds = pool.submit(collect)
            try:
                found = states(runs)
            finally:
                ended.set()
    assert rounds.result() > 3
    made = Counter(stage for rows in found for stage, _, state in rows if state == "completed")
    assert made == Counter(
        {
            "download": 6,
            "prepare_sets": 2,
            "clean": 1,
            "learn_bpe": 1,
            "shard": 3,
            "train": 2,
            "average": 2,
            "translate": 2 * 8,
            "score": 2 * 8,
        }
    )
    assert {state for rows in found for _, _, state in rows} == {"completed", "cached"}


def test_two_machines_on_one_bucket_end_with_one_artifact_for_each_key(
    s3: Server, mirror: Path, tmp_path: Path
) -> None:
    address, caches = f"s3://{s3.bucket}/prefix", (tmp_path / "one", tmp_path / "other")
    with ExitStack() as stack:
        machines = [
            stack.enter_context(
                start_small(mirror, address, hold=True, until="score", variables={"REPRO_CACHE": f"{cache}"})
            )
            for cache in caches
        ]
        found = states(machines)
    made = Counter((stage, item) for rows in found for stage, item, state in rows if state == "completed")
    assert {stage for stage, _ in made} == {stage for rows in found for stage, _, _ in rows}
    names = [name.split("/") for name in Bucket(address).list("") if name.split("/")[0] != "runs"]
    manifests = {(stage, key) for stage, key, *rest in names if rest == ["manifest.json"]}
    assert len(manifests) == len(made)
    folders = {(stage, key, rest[0]) for stage, key, *rest in names if rest != ["manifest.json"]}
    assert len(folders) == len(manifests), "the files of one artifact only, and no snapshot"
    digests = [artifact_digests(root) for cache in caches for root in cache.glob("*")]
    assert all(one[name] == other[name] for one in digests for other in digests for name in one.keys() & other.keys())
