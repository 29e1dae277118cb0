"""Of two machines that share a bucket one makes an artifact that takes long, whatever their clocks say."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from s3_server import Server
from toy_stages import ORDER, NoTracker, Number, Quiet

from infra.errors import NetworkFault
from infra.processes.identity import process_identity
from infra.site import Site
from infra.store import lease as lease_module
from infra.store.lease import LEASE, LEASE_SECONDS, Lease, LeaseLost
from infra.store.maintenance import leftovers
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket, PreconditionFailed
from tasks.engine.planner import Scope
from tasks.engine.runner import Runner
from tasks.engine.stage import Facts, engine, progress, stage

FOLDER = "train/k1"


class Machine:
    """A machine whose clock moves only while it waits; ``meanwhile`` is what others do during each wait."""

    def __init__(self, s3: Server, began: float = 0.0) -> None:
        self.now, self.began = began, began
        self.meanwhile: Callable[[], object] = lambda: None
        self.waited_for: list[str] = []
        self.messages: list[str] = []
        self.bucket = Bucket(f"s3://{s3.bucket}/store")
        self.lease = Lease(self.bucket, FOLDER, lambda: self.now, self.wait)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()
        assert self.now - self.began < 100 * LEASE_SECONDS, "waits for ever"

    def acquire(self) -> None:
        self.lease.acquire(self.waited_for.append, self.messages.append)

    @property
    def waited_seconds(self) -> float:
        return self.now - self.began


@pytest.fixture
def holder(s3: Server) -> Machine:
    machine = Machine(s3)
    machine.acquire()
    return machine


@pytest.fixture(params=[-1e9, 0.0, 1e9])
def other(s3: Server, request: pytest.FixtureRequest) -> Machine:
    """A machine whose clock is decades before or after the holder's."""
    return Machine(s3, request.param)


def content(machine: Machine) -> dict[str, str]:
    found: dict[str, str] = json.loads(machine.bucket.read(f"{FOLDER}/{LEASE}"))
    return found


def test_a_lease_that_is_renewed_is_never_taken(holder: Machine, other: Machine) -> None:
    waits: list[int] = []

    def works_long() -> None:
        waits.append(1)
        if len(waits) % 10 == 0:
            holder.lease.renew()
        if len(waits) == 100:
            holder.lease.release()

    other.meanwhile = works_long
    other.acquire()
    assert len(waits) == 100
    assert other.waited_seconds > 5 * LEASE_SECONDS
    assert len(other.waited_for) == 1
    assert other.waited_for[0].startswith("process ")
    assert not other.messages
    holder.lease.check()


def test_the_lease_of_a_dead_machine_is_taken_after_its_time(holder: Machine, other: Machine) -> None:
    other.acquire()
    assert LEASE_SECONDS <= other.waited_seconds < 2 * LEASE_SECONDS
    assert f"did not renew its lease for {LEASE_SECONDS:g} s" in other.messages[0]


def test_a_holder_that_comes_back_after_a_takeover_stops_and_leaves_the_lease(holder: Machine, other: Machine) -> None:
    other.acquire()
    taken = content(other)
    holder.lease.check()
    holder.lease.renew()
    with pytest.raises(LeaseLost, match=r"process \d+ on .* took over train k1"):
        holder.lease.check()
    holder.lease.release()
    assert content(other) == taken
    other.lease.renew()
    other.lease.check()


def test_a_removal_that_is_sent_again_leaves_the_lease_of_the_next_holder(
    holder: Machine, other: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, removals = holder.bucket._call, []

    def recorded(name: str, request: str, **arguments: object) -> object:
        if request.startswith("delete"):
            removals.append(lambda: call(name, request, **arguments))
        return call(name, request, **arguments)

    monkeypatch.setattr(holder.bucket, "_call", recorded)
    holder.lease.release()
    other.acquire()
    taken = content(other)
    for send_again in removals:
        with pytest.raises(PreconditionFailed):
            send_again()
    assert removals
    assert content(other) == taken


def test_a_holder_that_comes_back_before_a_takeover_keeps_the_lease(s3: Server, holder: Machine) -> None:
    s3.inject_faults(status=403, code="RequestTimeTooSkewed", times=99)
    with pytest.raises(Exception, match="refused"):
        holder.lease.renew()
    s3.inject_faults()
    holder.lease.renew()
    holder.lease.check()


def test_a_renewal_whose_answer_was_lost_counts(holder: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = holder.bucket.put_if_match

    def without_answer(name: str, content: bytes, if_match: str = "") -> str:
        whole(name, content, if_match)
        raise NetworkFault("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(holder.bucket, "put_if_match", without_answer)
        with pytest.raises(NetworkFault):
            holder.lease.renew()
    for _ in range(2):
        holder.lease.renew()
        holder.lease.check()


def test_a_lease_that_was_removed_is_made_again(holder: Machine) -> None:
    holder.bucket.delete([f"{FOLDER}/{LEASE}"])
    holder.lease.renew()
    holder.lease.check()
    assert content(holder)["number"]


def test_the_lease_of_a_process_that_ended_on_this_machine_is_taken_at_once(holder: Machine, other: Machine) -> None:
    dead = process_identity().rpartition("/")[0] + "/1"  # this process id, of an earlier process
    holder.bucket.put(f"{FOLDER}/{LEASE}", json.dumps(content(holder) | {"process": dead}).encode())
    other.acquire()
    assert other.waited_seconds == 0
    assert "has ended" in other.messages[0]


@pytest.mark.parametrize("text", [b"", b"[]", b'{"mark": 1}', b"\xff"])
def test_an_unreadable_lease_expires(s3: Server, text: bytes) -> None:
    machine = Machine(s3)
    machine.bucket.put(f"{FOLDER}/{LEASE}", text)
    machine.acquire()
    assert LEASE_SECONDS <= machine.waited_seconds < 2 * LEASE_SECONDS


def test_one_of_two_that_take_over_at_once_gets_the_lease(
    s3: Server, holder: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Machine(s3), Machine(s3)
    write = second.bucket.put_if_match

    def after_the_first(name: str, content: bytes, if_match: str = "") -> str:
        if if_match and not first.messages:
            first.acquire()
        return write(name, content, if_match)

    monkeypatch.setattr(second.bucket, "put_if_match", after_the_first)

    def renew_first() -> None:
        if first.messages and second.waited_seconds < 4 * LEASE_SECONDS:
            first.lease.renew()
        elif first.messages:
            first.lease.release()

    second.meanwhile = renew_first
    second.acquire()
    first.lease.check()
    assert second.waited_seconds >= 4 * LEASE_SECONDS, "it waited until the first released the lease"
    assert not second.messages, "it took over from nobody"


def test_a_lease_left_by_a_dead_machine_is_a_leftover(s3: Server, holder: Machine, tmp_path: Path) -> None:
    store = S3Store(tmp_path, holder.bucket, 10**9)
    assert not list(leftovers(store, before=0.0))
    [left] = leftovers(store, before=1e12)
    assert left.place == f"{FOLDER}/{LEASE}"
    left.remove()
    assert not holder.bucket.list("")


class World:
    """What the bodies of the stages of these tests do and how often they ran."""

    made: list[str]
    during: Callable[[], object]


@stage(version=1, needs="gpu")
def total(out: Path, number: Number) -> Facts:
    World.made.append(threading.current_thread().name)
    World.during()
    progress(1, 2)
    (out / "n").write_text(f"{number.value}")
    return {}


@stage(version=1)
def make(out: Path, number: Number) -> Facts:
    World.made.append("make")
    (out / "n").write_text(f"{number.value}")
    return {}


def runner(s3: Server, root: Path) -> tuple[Runner, Quiet]:
    display = Quiet()
    store = S3Store(root, Bucket(f"s3://{s3.bucket}/store"), 10**9)
    return Runner(store, Site(root=root), Scope(ORDER), display, NoTracker()), display  # type: ignore[arg-type]


def run(present: Runner) -> str:
    with engine(present):
        return (total(Number()).path() / "n").read_text()


def test_the_machine_that_waits_takes_the_finished_artifact(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "POLL_SECONDS", 0.05)
    (first, _), (second, display) = runner(s3, tmp_path / "first"), runner(s3, tmp_path / "second")
    results: list[str] = []
    later = threading.Thread(target=lambda: results.append(run(second)), name="second", daemon=True)

    def until_second_waits() -> None:
        later.start()
        for _ in range(600):
            if any("waiting for process" in text for text in display.said):
                return
            threading.Event().wait(0.1)
        raise AssertionError("the second machine does not wait")

    World.made, World.during = [], until_second_waits
    assert run(first) == "3"
    later.join(60)
    assert results == ["3"]
    assert World.made == ["MainThread"]
    assert [name for name in first.store.bucket.list("") if name.endswith(LEASE)] == []  # type: ignore[attr-defined]


def test_a_machine_that_lost_its_lease_ends_its_work_and_takes_the_others(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, display), (second, _) = runner(s3, tmp_path / "first"), runner(s3, tmp_path / "second")
    bucket: Bucket = first.store.bucket  # type: ignore[attr-defined]
    monkeypatch.setattr(lease_module, "RENEW_SECONDS", 0.05)

    def away_until_another_made_it() -> None:
        if len(World.made) > 1:
            return
        [name] = [name for name in bucket.list("") if name.endswith(LEASE)]
        elsewhere = {"holder": "another", "process": "", "mark": "x", "number": 1}
        bucket.put(name, json.dumps(elsewhere).encode())
        for _ in range(600):
            try:
                progress(1, 2)
            except LeaseLost:
                break
            threading.Event().wait(0.1)
        bucket.delete([name])
        assert run(second) == "3"
        progress(1, 2)

    World.made, World.during = [], away_until_another_made_it
    assert run(first) == "3"
    assert len(World.made) == 2, "once here, in vain, and once on the other machine"
    assert any("another took over total" in text for text in display.said)
    assert [row.state for row in first.rows] == ["cached"]


def test_a_cheap_stage_asks_for_no_lease(s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    World.made, World.during = [], lambda: None
    present, _ = runner(s3, tmp_path)
    monkeypatch.setattr(S3Store, "lease", lambda *_: pytest.fail("a lease for a cheap stage"))
    with engine(present):
        make(Number())
    assert World.made == ["make"]
    with pytest.raises(pytest.fail.Exception):
        run(present)
