"""A launcher by a queue: what becomes of a job's end, of another in its folder, of an interrupt."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infra.errors import BadData, Fault, JobFailed, NetworkFault, OutOfMemory, Preempted
from infra.launch.batch_queue import QueueLauncher, QueueStatus, job_name
from infra.launch.job import JobSpec


@dataclass
class Listed:
    """A queue whose answers are given; ``ends`` is called when the last one is asked for."""

    looks: list[QueueStatus | Fault]
    standing: str = ""
    same: bool = True
    ends: Callable[[], object] = bool
    did: list[str] = field(default_factory=list)

    def is_same_spec(self, job: JobSpec) -> bool:
        return self.same

    def find(self, job: JobSpec) -> str:
        return self.standing

    def submit(self, job: JobSpec) -> str:
        assert job.path.exists()
        self.did.append("submit")
        return "job 1"

    def poll(self, name: str) -> QueueStatus:
        look = self.looks[0] if len(self.looks) == 1 else self.looks.pop(0)
        if isinstance(look, Fault):
            raise look
        if look.phase == "ended":
            self.ends()
        return look

    def cancel(self, name: str) -> None:
        self.did.append(f"cancel {name}")

    def clear(self, name: str) -> None:
        self.did.append(f"clear {name}")


RUNS, DONE, FAILED = (
    QueueStatus("runs", "running"),
    QueueStatus("ended", "completed", status=0),
    QueueStatus("ended", "failed", status=3),
)


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    return JobSpec("model.train", {"size": 3}, {}, tmp_path, {})


def leave(job: JobSpec, reason: str, message: str = "") -> None:
    (job.out / "exit.json").write_text(json.dumps({"reason": reason, "message": message}))


def launch(queue: Listed, job: JobSpec, on_poll: Callable[[], object] = bool, **settings: float) -> list[str]:
    said: list[str] = []
    launcher = QueueLauncher(queue, poll_seconds=0.001, lag_seconds=0.0, say=said.append)
    for name, value in settings.items():
        setattr(launcher, name, value)
    launcher.run(job, lambda: (on_poll(), None)[1])
    return said


def test_a_job_is_followed_to_its_end(job: JobSpec) -> None:
    queue, polls = (
        Listed([QueueStatus("waits", "pending (Resources)"), RUNS, RUNS, DONE], ends=lambda: leave(job, "done")),
        [],
    )
    said = launch(queue, job, lambda: polls.append(1))
    assert said == ["model.train was submitted as job 1", "job 1: pending (Resources)", "job 1: running"]
    assert queue.did == ["submit", "clear job 1"]
    assert len(polls) >= 4


@pytest.mark.parametrize(
    ("reason", "look", "kind", "sentence"),
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
def test_the_job_has_the_word_where_it_knows_and_the_queue_elsewhere(
    job: JobSpec, reason: str, look: QueueStatus, kind: type[Fault], sentence: str
) -> None:
    queue = Listed([RUNS, look], ends=lambda: leave(job, reason, "line 7") if reason else None)
    with pytest.raises(kind, match=sentence) as caught:
        launch(queue, job)
    assert type(caught.value) is kind


def test_a_job_that_is_done_is_done_whatever_its_node_did_next(job: JobSpec) -> None:
    lost = QueueStatus("ended", "node_fail", JobFailed("its node is gone"))
    launch(Listed([RUNS, lost], ends=lambda: leave(job, "done")), job)


def test_an_unseen_log_hints_at_the_disk(job: JobSpec) -> None:
    with pytest.raises(JobFailed, match="do the nodes share that disk"):
        launch(Listed([FAILED]), job)


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_exception_cancels_and_waits(job: JobSpec, end: type[BaseException]) -> None:
    queue = Listed([RUNS, RUNS, RUNS, DONE])

    def poll() -> None:
        if len(queue.looks) < 3:
            raise end

    with pytest.raises(end):
        launch(queue, job, poll)
    assert queue.did == ["submit", "cancel job 1", "clear job 1"]
    assert queue.looks == [DONE], "it was left before it had ended"


def test_an_interrupt_ends_though_the_queue_is_away(job: JobSpec) -> None:
    def poll() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(Listed([NetworkFault("away")]), job, poll)
    with pytest.raises(KeyboardInterrupt):
        launch(Listed([RUNS]), job, poll, end_seconds=0.01)


def test_a_queue_may_be_away_for_a_while_and_not_for_ever(job: JobSpec) -> None:
    away = NetworkFault("the controller does not answer")
    launch(Listed([RUNS, away, away, DONE], ends=lambda: leave(job, "done")), job)
    with pytest.raises(NetworkFault):
        launch(Listed([RUNS, away]), job, patience_seconds=0.05)


def test_the_same_job_of_a_killed_launcher_is_gone_on_with(job: JobSpec) -> None:
    job.write()
    queue = Listed([RUNS, DONE], standing="job 0", ends=lambda: leave(job, "done"))
    assert launch(queue, job)[0] == "job 0 was left running by an earlier try; this one goes on with it"
    assert queue.did == ["clear job 0"]


@pytest.mark.parametrize("other", ["text", "description", "ending"])
def test_another_job_over_the_same_folder_ends_before_one_is_submitted(job: JobSpec, other: str) -> None:
    job.write()
    if other == "text":
        job.path.write_text("{}")
    first: list[QueueStatus | Fault] = [QueueStatus("ends", "completing")] if other == "ending" else []
    queue = Listed([*first, RUNS, DONE], standing="job 0", same=other != "description", ends=lambda: leave(job, "done"))
    launch(queue, job)
    assert queue.did == ["cancel job 0", "clear job 0", "submit", "clear job 1"]


def test_nothing_is_submitted_beside_a_job_that_does_not_end(job: JobSpec) -> None:
    queue = Listed([RUNS], standing="job 0", same=False)
    with pytest.raises(JobFailed, match="job 0 of an earlier try does not end"):
        launch(queue, job, end_seconds=0.01)
    assert "submit" not in queue.did


def test_a_folder_has_one_name_that_is_a_host_name_too(job: JobSpec, tmp_path: Path) -> None:
    again = JobSpec("model.train", {}, {}, tmp_path, {})
    other = JobSpec("model.train", {}, {}, tmp_path / "other", {})
    strange = JobSpec("model.Some_Very_Long_Name_Of_A_Module_", {}, {}, tmp_path, {})
    assert job_name(job) == job_name(again) != job_name(other)
    assert all(len(job_name(each)) <= 40 for each in (job, strange))
    assert set(job_name(strange)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
