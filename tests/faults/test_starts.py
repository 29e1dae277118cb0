"""One run started twice: what one of them makes, the other waits for, or takes over when it is killed."""

from collections import Counter
from pathlib import Path

import pytest
from services import (
    Services,
    assert_metrics_logged_once,
    has_checkpoint,
    processes,
    stage_states,
    wait_for,
    wait_for_outcome,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("nothing_left")]
UNTIL = ("--until", "average")


def test_at_the_same_moment(services: Services, root: Path) -> None:
    both = [services.run(root, "LONG", *UNTIL) for _ in range(2)]
    made: Counter[str] = Counter()
    for process in both:
        for stage, found in stage_states(wait_for_outcome(process)).items():
            made[stage] += "completed" in found
    assert (made["train"], made["average"], made["shard"]) == (1, 1, 0)
    assert_metrics_logged_once(services, root)


def test_a_holder_of_a_lock_is_killed(services: Services, root: Path) -> None:
    """Whichever of the two holds it; the other ends what the killed one left "Running" as well."""
    both = {process.pid: process for process in (services.run(root, "LONG", *UNTIL) for _ in range(2))}
    wait_for(lambda: has_checkpoint(root))
    (torchrun,) = processes(root, "torch.distributed.run")
    holder = both.pop(torchrun.ppid())
    holder.kill()
    holder.wait()
    (other,) = both.values()
    assert stage_states(wait_for_outcome(other))["train"] == {"completed"}
    assert_metrics_logged_once(services, root)
