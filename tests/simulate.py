"""Run simulated schedules: ``simulate.py SEED`` runs one and prints it, ``simulate.py FIRST COUNT`` runs many.

With ``bucket`` as the last word machines share a bucket.
"""

import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "support"), str(Path(__file__).parents[1])]

from simulated import bucket_schedules, schedules  # noqa: E402


def main(first: int, count: int, in_bucket: bool) -> int:
    kind, started = bucket_schedules if in_bucket else schedules, time.process_time()
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
    words = [word for word in sys.argv[1:] if word != "bucket"]
    sys.exit(main(int(words[0]), int(words[1]) if len(words) > 1 else 1, "bucket" in sys.argv))
