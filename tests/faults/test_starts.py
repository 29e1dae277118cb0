"""One run started twice: what one of them makes, the other waits for, or takes over when it is killed."""

from collections import Counter
from pathlib import Path

import pytest
from world import World, checkpoint_there, finished, rows_arrived_once, states, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("nothing_left")]
UNTIL = ("--until", "average")


def test_at_the_same_moment(world: World, root: Path) -> None:
    both = [world.run(root, "LONG", *UNTIL) for _ in range(2)]
    made: Counter[str] = Counter()
    for process in both:
        for stage, found in states(finished(process)).items():
            made[stage] += "completed" in found
    assert (made["train"], made["average"], made["shard"]) == (1, 1, 0)
    rows_arrived_once(world, root)


def test_a_holder_of_a_lock_is_killed(world: World, root: Path) -> None:
    first = world.run(root, "LONG", *UNTIL)
    wait_for(lambda: checkpoint_there(root))
    second = world.run(root, "LONG", *UNTIL)
    assert second.stderr
    wait_for(lambda: "waiting for process" in second.stderr.readline())
    first.kill()
    first.wait()
    assert states(finished(second))["train"] == {"completed"}
    rows_arrived_once(world, root)
