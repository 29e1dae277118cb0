"""One run started twice at the same moment: one process does the work, and the other takes over when that is killed."""

from pathlib import Path

import pytest
from services import (
    Services,
    assert_metrics_logged_once,
    has_checkpoint,
    stage_states,
    wait_for,
    wait_for_outcome,
)
from small_pipeline import processes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]
UNTIL = ("--until", "average")


def test_the_holder_of_a_lock_is_killed(services: Services, root: Path) -> None:
    """The other process finishes the work; `repro status --close` closes what the killed one left "Running"."""
    both = {process.pid: process for process in (services.run(root, "LONG", *UNTIL) for _ in range(2))}
    wait_for(lambda: has_checkpoint(root))
    (torchrun,) = processes(root, "torch.distributed.run")
    holder = both.pop(torchrun.ppid())
    holder.kill()
    holder.wait()
    (other,) = both.values()
    assert stage_states(wait_for_outcome(other))["train"] == {"completed"}
    services.unfinished(root, "--close")
    assert_metrics_logged_once(services, root)
