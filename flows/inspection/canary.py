"""Reruns a run from its downloads to its scores in a folder of its own, and says what moved since the record.

It is not the run's root with all stages forced, because a forced stage replaces the artifact that registered versions
and later stages rest on: a canary that finds other bits would damage what it watches. ``<root>/canary/<run>`` is
emptied first and kept afterwards, so that what moved can be looked at (``REPRO_ROOT=.repro/canary/demo repro ls``).
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from flows.inspection.check import compare_results, kind_of, label_of
from flows.runner.request import ResolvedRun, RunRequest
from flows.runs.expected import ExpectedResults, expected_results
from infra.errors import BadConfiguration
from infra.site import open_store
from infra.store.file_names import file_name
from infra.store.local import Store
from infra.tracking.provenance import commit, short_commit
from tasks.engine.planner import StageResult

EARLIER = 7
"""The limit on seconds is a multiple of the median of this many earlier canaries."""
LEAST_RISE = 60.0
"""Seconds that a canary may always take more than usual: a short one waits for a busy machine."""
COMPARED = re.compile(r"(average|translate .+|score .+)$")
"""Stages whose files are compared with an earlier canary where ``expected.json`` has none of this kind of machine."""
SCORES = "card.json"
"""The file of a set's scores."""
MEASURES = ("bleu", "chrf")


@dataclass(frozen=True)
class Canary:
    """One canary, as a line of ``<root>/canary/<run>.jsonl`` keeps it."""

    time: str
    commit: str
    kind: str
    """Of machine: kernels, threads, ranks, torch; "" where the training does not say."""
    seconds: Mapping[str, float]
    """Of each stage (``translate dev``)."""
    contents: Mapping[str, str]
    """Content digest of each stage."""
    sums: Mapping[str, Mapping[str, str]]
    """SHA-256 of the files of the compared stages."""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """BLEU and chrF by evaluation set."""
    agrees: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    """What is not as recorded; empty if all is."""
    not_compared: str = ""

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    def message(self, run: str) -> str:
        """``demo moved: …`` or ``demo is as recorded: …``."""
        if self.moved:
            return f"{run} moved: {'; '.join(self.moved)}"
        agrees = f"{run} is as recorded: {'; '.join(self.agrees)}" if self.agrees else run
        return f"{agrees} ({self.not_compared})" if self.not_compared else agrees


@dataclass(frozen=True)
class CanaryLimits:
    """How long a canary may take."""

    seconds: float = 0.0
    """Of all stages together; 0: no limit but the next."""
    slower: float = 2.0
    """Times the median of the last canaries on this kind of machine; 0: no limit."""

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise BadConfiguration(f"seconds is {self.seconds:g}, allowed is 0 (no limit) or more")
        if self.slower and self.slower <= 1:
            raise BadConfiguration(f"slower is {self.slower:g}, allowed is 0 (no limit) or a number above 1")


@dataclass
class CanaryHistory:
    """The canaries of one run in a root, oldest first."""

    path: Path
    canaries: list[Canary] = field(default_factory=list)

    @staticmethod
    def read(path: Path) -> "CanaryHistory":
        lines = path.read_text().splitlines() if path.exists() else []
        return CanaryHistory(path, [Canary(**json.loads(line)) for line in lines])

    def append(self, canary: Canary) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(vars(canary), ensure_ascii=False) + "\n")
        self.canaries.append(canary)

    def good(self, kind: str) -> list[Canary]:
        """Those of one kind of machine of which nothing had moved."""
        return [each for each in self.canaries if each.kind == kind and not each.moved]


def canary_folder(root: Path, name: str) -> Path:
    return root / "canary" / file_name(name)


def fresh_run(request: RunRequest) -> ResolvedRun:
    """The run until its scores, in an emptied folder below the root, which shares nothing with the root."""
    resolved = replace(request, until="score").resolve()
    folder = canary_folder(resolved.site.root, resolved.run.name)
    shutil.rmtree(folder, ignore_errors=True)
    alone = replace(resolved.site, root=folder, remote="", tracking_uri="", tracking_file="", gpu_pool="")
    return replace(resolved, site=alone)


def judge(resolved: ResolvedRun, rows: Sequence[StageResult], limits: CanaryLimits) -> Canary:
    """Compare the finished stages of a fresh run with the record and with earlier canaries; adds them to the history.

    Of stages of which nothing is recorded on this kind of machine, the last canary of that kind is the record.
    """
    name, folder = resolved.run.name, resolved.site.root
    history = CanaryHistory.read(folder.with_suffix(".jsonl"))
    done = [replace(row, state="hit") for row in rows]
    canary = compare(name, done, open_store(resolved.site), history, limits)
    history.append(canary)
    return canary


def compare(
    name: str, rows: Sequence[StageResult], store: Store, history: CanaryHistory, limits: CanaryLimits
) -> Canary:
    """The canary of finished stages: what agrees with the record and with earlier canaries, and what moved."""
    manifests = {label_of(row): store.manifest(row.stage, row.key) for row in rows}
    found = {label: manifest for label, manifest in manifests.items() if manifest}
    sums = {
        label: {file: entry["sha256"] for file, entry in manifest.files.items() if _is_result(file)}
        for label, manifest in found.items()
        if COMPARED.match(label)
    }
    kind = kind_of(rows, store)
    good = history.good(kind)
    expected = expected_results().get(name, ExpectedResults({}, {}))
    recorded = expected.digests.get(kind, {})
    if good and kind:
        expected = replace(expected, digests={**expected.digests, kind: {**good[-1].sums, **recorded}})
    check = compare_results(name, rows, store, expected)
    first = f"nothing is recorded of {kind}: the next canaries are compared with this one"
    canary = Canary(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit(),
        kind=kind,
        seconds={label_of(row): row.seconds for row in rows},
        contents={label: manifest.content for label, manifest in found.items()},
        sums=sums,
        scores={row.item: _measures(row.facts) for row in rows if row.stage == "score"},
        agrees=check.agrees,
        not_compared=check.not_compared if good or recorded or not kind else first,
    )
    moved = [*check.differs]
    if moved and good:
        before = good[-1]
        moved += [*_scores_that_moved(canary, before), _first_to_move(canary, before)]
        others = {
            label for label in sums.keys() - recorded.keys() if sums[label] != before.sums.get(label, sums[label])
        }
        moved += [f"if that is meant, remove {history.path}"] if others else []
    return replace(canary, moved=(*moved, *_slow(canary, good, limits)))


def _measures(facts: Mapping[str, Any]) -> dict[str, float]:
    return {name: facts[name] for name in MEASURES if name in facts}


def _scores_that_moved(now: Canary, before: Canary) -> list[str]:
    return [
        f"{name} {measure} is {value:.2f}, it was {earlier:.2f}"
        for name, measures in now.scores.items()
        for measure, value in measures.items()
        if (earlier := before.scores.get(name, {}).get(measure, value)) != value
    ]


def _first_to_move(now: Canary, before: Canary) -> str:
    """Which stage was the first to give other files than the last canary of which nothing had moved."""
    first = next((label for label in now.contents if now.contents[label] != before.contents.get(label)), "")
    then, commit_now = (short_commit(each.commit) or "unknown" for each in (before, now))
    since = f"the canary of {before.time} (commit {then}, now {commit_now})"
    return f"the first stage with other files than {since} is {first}" if first else f"every file is that of {since}"


def _slow(now: Canary, good: Sequence[Canary], limits: CanaryLimits) -> list[str]:
    found, took = [], f"it took {now.total_seconds:,.0f} s"
    if limits.seconds and now.total_seconds > limits.seconds:
        found.append(f"{took}, allowed are {limits.seconds:,.0f} s (parameter seconds)")
    if limits.slower and good:
        last = good[-EARLIER:]
        usual = median(each.total_seconds for each in last)
        if now.total_seconds > max(limits.slower * usual, usual + LEAST_RISE):
            rise = {
                label: s - median(each.seconds.get(label, 0.0) for each in last) for label, s in now.seconds.items()
            }
            most = max(rise, key=lambda label: rise[label])
            of = "the last good canary" if len(last) == 1 else f"the last {len(last)} good canaries"
            text = f"allowed are {limits.slower:g} times (parameter slower) the {usual:,.0f} s of {of}"
            found.append(f"{took}, {text}; {most} took {now.seconds[most]:,.0f} s, {rise[most]:,.0f} s more than usual")
    return found


def _is_result(file: str) -> bool:
    return file == SCORES or file.endswith((".safetensors", ".parquet"))
