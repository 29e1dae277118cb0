"""Stand-ins for all official En-De archives go through the paper's run up to its shards, from a mirror on loopback."""

from dataclasses import replace
from pathlib import Path

import pytest
from loopback_mirror import Mirror, Mood, served
from official_layout import LINES, NEWSTEST, archives, pinned
from small_pipeline import run_small

from flows.running import Outcome, Request
from flows.runs import RUNS
from infra import interrupts
from tasks.download import AT_ONCE

NAME = "wmt14-ende-base"


@pytest.fixture(scope="module")
def stand_ins() -> dict[str, bytes]:
    return archives()


def go(stand_ins: dict[str, bytes], mirror: Mirror, monkeypatch: pytest.MonkeyPatch, until: str) -> Outcome:
    official = RUNS[NAME]
    monkeypatch.setitem(RUNS, NAME, pinned(official, stand_ins))
    assert replace(RUNS[NAME], corpus=official.corpus, sets=official.sets) == official, "only the sums are others"
    monkeypatch.setenv("REPRO_MIRRORS", mirror.address)
    monkeypatch.setenv("REPRO_THREADS", "1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(interrupts, "wait", lambda seconds: None)
    return run_small(Request(NAME, until=until))


def facts(outcome: Outcome, stage: str) -> dict[str, dict[str, object]]:
    return {row.item: row.facts for row in outcome.rows if row.stage == stage}


def test_all_official_archives_reach_the_shards(
    stand_ins: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with served(stand_ins) as mirror:
        for n, path in enumerate(stand_ins):
            mirror.moods[path] = [Mood(cut=10_000 + n), Mood(status=503), Mood(cut=5_000, ranges=bool(n % 2))]
        outcome = go(stand_ins, mirror, monkeypatch, "shard")
    assert mirror.together <= AT_ONCE
    assert {row.state for row in outcome.rows} == {"completed"}
    assert [row.item for row in outcome.rows if row.stage == "download"] == [
        *(f"wmt14/training-parallel-{name}.tgz" for name in ("europarl-v7", "commoncrawl", "nc-v9")),
        *(f"wmt14/{name}.tgz" for name in ("dev", "test-filtered", "test-full")),
    ]
    cleaned = facts(outcome, "clean")[""]
    assert cleaned["read"] == sum(LINES.values())
    assert {name: told["pairs"] for name, told in facts(outcome, "prepare_sets").items()} == {
        "newstest2013": 30,
        "newstest2014": NEWSTEST["test-filtered"],
        "newstest2014_full": NEWSTEST["test-full"],
    }
    assert facts(outcome, "learn_bpe")[""]["size"] == 37_000
    assert facts(outcome, "shard")["train"]["pairs"] == cleaned["pairs"]
    assert not list((tmp_path / "repro").glob("*/*.partial*"))
