"""Run simulated schedules: ``simulate.py SEED`` runs one and prints it, ``simulate.py FIRST COUNT`` runs many."""

import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "support"), str(Path(__file__).parents[1])]

from simulated.schedules import report, run, schedule_of  # noqa: E402


def main(first: int, count: int = 1) -> int:
    started = time.process_time()
    failed = 0
    for seed in range(first, first + count):
        schedule = schedule_of(seed)
        if found := report(schedule):
            print(found, flush=True)
            failed += 1
        elif count == 1:
            print(schedule, *run(schedule), "every invariant holds", sep="\n")
    seconds = time.process_time() - started
    print(f"{count} schedules, {failed} failed, {60 * count / seconds:,.0f} a minute of CPU time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
