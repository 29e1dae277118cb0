"""Run simulated schedules: ``simulate.py SEED`` runs one and prints it, ``simulate.py FIRST COUNT`` runs many.

With ``bucket`` as the last word machines share a bucket, with ``registry`` runs register models.
"""

import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "support"), str(Path(__file__).parents[1])]

from simulated import bucket_schedules, registry_schedules, schedules  # noqa: E402

KINDS = {"bucket": bucket_schedules, "registry": registry_schedules, "local": schedules}


def main(first: int, count: int, name: str) -> int:
    kind, started = KINDS[name], time.process_time()
    failed = 0
    for seed in range(first, first + count):
        schedule = kind.schedule_of(seed)
        if found := schedules.report(schedule, kind.run):
            print(found, flush=True)
            failed += 1
        elif count == 1:
            print(schedule, *kind.run(schedule), "every invariant holds", sep="\n")
    print(
        f"{count} schedules, {failed} failed, {60 * count / (time.process_time() - started):,.0f} a minute of CPU time"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word not in KINDS]
    name = next((word for word in sys.argv[1:] if word in KINDS), "local")
    sys.exit(main(int(words[0]), int(words[1]) if len(words) > 1 else 1, name))
