"""A plan over a shared bucket says which artifacts it refuses, and a run makes them again and signs them."""

from pathlib import Path

from s3_server import Server
from signing_keys import key_pair
from toy_stages import ORDER, NoTracker, Quiet, build

from infra.site import Site
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket
from infra.store.signatures import Keys
from tasks.engine.planner import Planner, Scope
from tasks.engine.runner import Runner
from tasks.engine.stage import engine


class Machine:
    """One that shares the bucket; ``private`` signs, ``public`` is trusted."""

    def __init__(self, s3: Server, root: Path, private: Path | None, public: Path | None) -> None:
        keys = Keys.read(f"{private or ''}", f"{public or ''}")
        self.store = S3Store(root, Bucket(f"s3://{s3.bucket}/store"), 10**9, keys)
        self.site = Site(root=root, remote=f"s3://{s3.bucket}/store")

    def plan(self) -> list[tuple[str, str]]:
        present = Planner(self.store, self.site, Scope(ORDER))
        with engine(present):
            build(3)
        return [(row.state, row.why) for row in present.rows]

    def run(self) -> list[str]:
        present = Runner(self.store, self.site, Scope(ORDER), Quiet(), NoTracker())  # type: ignore[arg-type]
        with engine(present):
            build(3)
        return [row.state for row in present.rows]


def test_unsigned_and_foreign_artifacts_are_misses_with_their_reason(s3: Server, tmp_path: Path) -> None:
    ours, theirs = key_pair(tmp_path / "ours", "ours"), key_pair(tmp_path / "theirs", "theirs")
    Machine(s3, tmp_path / "a", None, None).run()
    machine = Machine(s3, tmp_path / "b", *ours)
    assert machine.plan() == [("miss", "unsigned")] * 3
    Machine(s3, tmp_path / "c", *theirs).run()
    assert machine.plan() == [("miss", "signed by an unknown key")] * 3
    assert machine.run() == ["completed"] * 3
    assert machine.plan() == [("hit", "")] * 3
    reader = Machine(s3, tmp_path / "d", None, ours[1])
    assert reader.plan() == [("hit", "")] * 3, "reading needs no private key"
