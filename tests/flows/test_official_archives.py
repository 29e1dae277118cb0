"""Stand-ins for all official archives go through the paper's runs up to their shards, from a mirror on loopback."""

from dataclasses import replace
from pathlib import Path

import pytest
from loopback_mirror import Reply, served
from official_layout import LINES, MORE_LINES, NEWSTEST, archives, pinned
from s3_server import Server
from small_pipeline import run_small

from flows.runner.outcome import Outcome, StageFailed, cached_outcome
from flows.runner.request import RunRequest, plan
from flows.runs import RUNS
from infra.processes import signals
from tasks.stages.download import MAX_CONCURRENT_DOWNLOADS

PARTS = ("europarl-v7", "commoncrawl", "nc-v9")
SETS = ("dev.tgz", "test-filtered.tgz", "test-full.tgz")
UNCLEANED = ("profile=paper",)
OF_FRENCH = ("training-parallel-un.tgz", "training-giga-fren.tar")


@pytest.fixture(scope="module")
def stand_ins() -> dict[str, dict[str, bytes]]:
    return {"wmt14-ende-base": archives(), "wmt14-enfr-base": archives("fr")}


def facts(outcome: Outcome, stage: str) -> dict[str, dict[str, object]]:
    return {row.item: row.facts for row in outcome.rows if row.stage == stage}


@pytest.mark.parametrize(
    ("name", "in_bucket"), [("wmt14-ende-base", True), pytest.param("wmt14-enfr-base", False, marks=pytest.mark.slow)]
)
def test_all_official_archives_reach_the_shards(
    name: str,
    in_bucket: bool,
    stand_ins: dict[str, dict[str, bytes]],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    files, official, root = stand_ins[name], RUNS[name], tmp_path / "repro"
    monkeypatch.setitem(RUNS, name, pinned(official, files))
    assert replace(RUNS[name], corpus=official.corpus, sets=official.sets) == official, "only the sums are others"
    if in_bucket:
        s3: Server = request.getfixturevalue("s3")
        monkeypatch.setenv("REPRO_ROOT", f"s3://{s3.bucket}/prefix")
        monkeypatch.setenv("REPRO_CACHE", f"{root}")
    monkeypatch.setenv("REPRO_THREADS", "1")
    request_of_shards = RunRequest(name, until="shard", overrides=UNCLEANED)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(signals, "wait", lambda seconds: None)
    with served(files) as mirror:
        for n, path in enumerate(files):
            mirror.replies[path] = [Reply(cut=10_000 + n), Reply(status=503), Reply(cut=5_000, ranges=bool(n % 2))]
        monkeypatch.setenv("REPRO_MIRRORS", mirror.address)
        for _ in range(3):  # each archive fails three times; the next start goes on with what has arrived
            with pytest.raises(StageFailed, match="download"):
                run_small(request_of_shards)
        outcome = run_small(request_of_shards)
    assert mirror.max_concurrent <= MAX_CONCURRENT_DOWNLOADS
    assert {row.state for row in outcome.rows} <= {"completed", "cached"}
    french = name == "wmt14-enfr-base"
    assert {row.item for row in outcome.rows if row.stage == "download"} == {
        f"wmt14/{file}"
        for file in (*(f"training-parallel-{part}.tgz" for part in PARTS), *SETS, *(OF_FRENCH if french else ()))
    }
    cleaned = facts(outcome, "clean")[""]
    assert cleaned["read"] == sum(LINES.values()) + french * sum(MORE_LINES.values())
    assert cleaned["pairs"] == cleaned["read"], "the paper's cleaning drops empty lines alone"
    assert {each: prepared["pairs"] for each, prepared in facts(outcome, "prepare_sets").items()} == {
        "newstest2013": 30,
        "newstest2014": NEWSTEST["test-filtered"],
        "newstest2014_full": NEWSTEST["test-full"],
    }
    assert facts(outcome, "learn_bpe")[""]["size"] == (32_000 if french else 37_000)
    assert facts(outcome, "shard")["train"]["pairs"] == cleaned["pairs"]
    assert not list(root.rglob("*.partial*"))
    assert cached_outcome(plan(request_of_shards))
