"""The queue launcher: job endings, jobs of an earlier launcher in the same folder, interrupts."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infra.errors import BadData, Fault, JobFailed, NetworkFault, OutOfMemory, Preempted
from infra.launch.batch_queue import QueueLauncher, QueueStatus, job_name
from infra.launch.job import JobSpec


@dataclass
class FakeQueue:
    """A queue with prepared answers; ``ends`` is called before it reports the end."""

    statuses: list[QueueStatus | Fault]
    existing: str = ""
    file: str = "description"
    text: str = "what is submitted"
    ends: Callable[[], object] = bool
    calls: list[str] = field(default_factory=list)

    def description(self, job: JobSpec) -> str:
        return self.text

    def find(self, job: JobSpec) -> str:
        return self.existing

    def submit(self, job: JobSpec) -> str:
        assert job.path.exists()
        self.calls.append("submit")
        return "job 1"

    def poll(self, name: str) -> QueueStatus:
        status = self.statuses[0] if len(self.statuses) == 1 else self.statuses.pop(0)
        if isinstance(status, Fault):
            raise status
        if status.phase == "ended":
            self.ends()
        return status

    def cancel(self, name: str) -> None:
        self.calls.append(f"cancel {name}")

    def clear(self, name: str) -> None:
        self.calls.append(f"clear {name}")


RUNS = QueueStatus("running", "running")
DONE = QueueStatus("ended", "completed", status=0)
FAILED = QueueStatus("ended", "failed", status=3)


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    return JobSpec("model.train", {"size": 3}, {}, tmp_path, {})


def write_exit(job: JobSpec, reason: str, message: str = "") -> None:
    (job.out / "exit.json").write_text(json.dumps({"reason": reason, "message": message}))


def launch(queue: FakeQueue, job: JobSpec, on_poll: Callable[[], object] = bool, **settings: float) -> list[str]:
    said: list[str] = []
    launcher = QueueLauncher(queue, poll_seconds=0.001, lag_seconds=0.0, say=said.append)
    for name, value in settings.items():
        setattr(launcher, name, value)
    launcher.run(job, lambda: (on_poll(), None)[1])
    return said


def test_a_job_is_followed_to_its_end(job: JobSpec) -> None:
    waits = QueueStatus("pending", "pending (Resources)")
    queue = FakeQueue([waits, RUNS, RUNS, DONE], ends=lambda: write_exit(job, "done"))
    polls: list[int] = []
    said = launch(queue, job, lambda: polls.append(1))
    assert said == ["model.train was submitted as job 1", "job 1: pending (Resources)", "job 1: running"]
    assert queue.calls == ["submit", "clear job 1"]
    assert len(polls) >= 4


@pytest.mark.parametrize(
    ("reason", "status", "kind", "sentence"),
    [
        ("bad_data", FAILED, BadData, "line 7"),
        ("preempted", FAILED, Preempted, "line 7"),
        ("", FAILED, JobFailed, "status 3"),
        ("failed", QueueStatus("ended", "", JobFailed("its node is gone")), JobFailed, "its node is gone"),
        ("", QueueStatus("ended", "", OutOfMemory("its memory")), OutOfMemory, "its memory"),
        ("bad_data", QueueStatus("ended", "", OutOfMemory("its memory")), BadData, "line 7"),
        ("preempted", QueueStatus("ended", "", Fault("cancelled")), Fault, "cancelled"),
    ],
)
def test_the_jobs_own_reason_takes_precedence_over_the_queues(
    job: JobSpec, reason: str, status: QueueStatus, kind: type[Fault], sentence: str
) -> None:
    queue = FakeQueue([RUNS, status], ends=lambda: write_exit(job, reason, "line 7") if reason else None)
    with pytest.raises(kind, match=sentence) as caught:
        launch(queue, job)
    assert type(caught.value) is kind


def test_a_finished_job_counts_although_its_node_failed_afterwards(job: JobSpec) -> None:
    lost = QueueStatus("ended", "node_fail", JobFailed("its node is gone"))
    launch(FakeQueue([RUNS, lost], ends=lambda: write_exit(job, "done")), job)


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_exception_cancels_and_waits(job: JobSpec, end: type[BaseException]) -> None:
    queue = FakeQueue([RUNS, RUNS, RUNS, DONE])

    def poll() -> None:
        if len(queue.statuses) < 3:
            raise end

    with pytest.raises(end):
        launch(queue, job, poll)
    assert queue.calls == ["submit", "cancel job 1", "clear job 1"]
    assert queue.statuses == [DONE], "it returned before the job had ended"


def test_an_interrupt_ends_although_the_queue_is_unreachable(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.launch.batch_queue.GRACE_SECONDS", 0.01)

    def poll() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(FakeQueue([NetworkFault("away")]), job, poll)
    with pytest.raises(KeyboardInterrupt):
        launch(FakeQueue([RUNS]), job, poll)


def test_a_queue_may_be_unreachable_for_a_limited_time(job: JobSpec) -> None:
    away = NetworkFault("the controller does not answer")
    launch(FakeQueue([RUNS, away, away, DONE], ends=lambda: write_exit(job, "done")), job)
    with pytest.raises(NetworkFault):
        launch(FakeQueue([RUNS, away]), job, patience_seconds=0.05)


def test_the_same_job_of_a_killed_launcher_is_continued(job: JobSpec) -> None:
    job.write()
    (job.out / "description").write_text("what is submitted")
    queue = FakeQueue([RUNS, DONE], existing="job 0", ends=lambda: write_exit(job, "done"))
    assert launch(queue, job)[0] == "job 0 is still running from an earlier attempt; continuing with it"
    assert queue.calls == ["clear job 0"]


@pytest.mark.parametrize("other", ["text", "description", "ending"])
def test_a_different_job_in_the_same_folder_is_cancelled_first(job: JobSpec, other: str) -> None:
    job.write()
    (job.out / "description").write_text("of before" if other == "description" else "what is submitted")
    if other == "text":
        job.path.write_text("{}")
    first: list[QueueStatus | Fault] = [QueueStatus("stopping", "completing")] if other == "ending" else []
    queue = FakeQueue([*first, RUNS, DONE], existing="job 0", ends=lambda: write_exit(job, "done"))
    launch(queue, job)
    assert queue.calls == ["cancel job 0", "clear job 0", "submit", "clear job 1"]


@pytest.mark.parametrize(("before", "is_fetched"), [("here\nold", True), ("there\nnew", False), ("", False)])
def test_only_what_an_earlier_job_wrote_in_the_same_place_is_fetched(
    job: JobSpec, before: str, is_fetched: bool
) -> None:
    (job.out / "job.sh").write_text("of a place before")
    job.write()
    assert not (job.out / "job.sh").exists(), "this launch was local"
    if before:
        (job.out / "description").write_text(before)
    queue = FakeQueue([DONE], text="here\nnew", ends=lambda: write_exit(job, "done"))
    QueueLauncher(queue, 0.001, lag_seconds=0.0, fetch=lambda *_: queue.calls.append("fetch")).run(job, lambda: None)
    assert queue.calls == [*["fetch"] * is_fetched, "submit", "fetch", "clear job 1"]


def test_nothing_is_submitted_while_an_earlier_job_does_not_end(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.launch.batch_queue.GRACE_SECONDS", 0.01)
    queue = FakeQueue([RUNS], existing="job 0")
    with pytest.raises(JobFailed, match="job 0, of an earlier attempt, does not end"):
        launch(queue, job)
    assert "submit" not in queue.calls


def test_a_folder_has_one_name_that_is_a_valid_host_name(job: JobSpec, tmp_path: Path) -> None:
    again = JobSpec("model.train", {}, {}, tmp_path, {})
    other = JobSpec("model.train", {}, {}, tmp_path / "other", {})
    strange = JobSpec("model.Some_Very_Long_Name_Of_A_Module_", {}, {}, tmp_path, {})
    assert job_name(job) == job_name(again) != job_name(other)
    assert all(len(job_name(each)) <= 40 for each in (job, strange))
    assert set(job_name(strange)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
