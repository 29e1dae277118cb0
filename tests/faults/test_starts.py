"""One run started twice: what one of them makes, the other waits for, or takes over when it is killed."""

from collections import Counter
from pathlib import Path

import pytest
from world import World, checkpoint_there, finished, processes, rows_arrived_once, states, wait_for

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
    """Whichever of the two holds it; the other ends what the killed one left "Running" as well."""
    both = {process.pid: process for process in (world.run(root, "LONG", *UNTIL) for _ in range(2))}
    wait_for(lambda: checkpoint_there(root))
    (torchrun,) = processes(root, "torch.distributed.run")
    holder = both.pop(torchrun.ppid())
    holder.kill()
    holder.wait()
    (other,) = both.values()
    assert states(finished(other))["train"] == {"completed"}
    rows_arrived_once(world, root)
