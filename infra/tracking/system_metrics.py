"""Use of this machine while a job runs, under the names that MLflow's page of system metrics shows.

MLflow's own sampler needs psutil, nvidia-ml-py and the fluent interface, which holds one run for each process.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

PREFIX = "system/"
INTERVAL_SECONDS = 10.0
LEAST_SECONDS = 60.0
"""A shorter job is not worth the curves."""
STAT = Path("/proc/stat")
MEMORY = Path("/proc/meminfo")
IDLE = slice(3, 5)
"""The fields of ``/proc/stat`` that count idle time and time that waits for a disk."""


class SystemMetrics:
    """Samples CPU, memory and the disk of ``folder``, and what ``others`` gives, such as values of GPUs.

    Gives the samples once the job is long enough.
    """

    def __init__(
        self,
        folder: Path,
        others: Callable[[], Mapping[str, float]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.others = others
        self.clock = clock
        self._began = self._sampled = clock()
        self._waiting: list[dict[str, float]] = []
        self._times = _cpu_times()

    def rows(self, done: float) -> list[dict[str, float]]:
        """Samples that were not given yet, as rows of ``metrics.jsonl``; ``done`` is the update that the job is at."""
        now = self.clock()
        if now - self._sampled >= INTERVAL_SECONDS:
            self._sampled = now
            self._waiting.append({"done": done, "time": time.time(), **self._sample()})
        if now - self._began < LEAST_SECONDS:
            return []
        found = self._waiting
        self._waiting = []
        return found

    def _sample(self) -> dict[str, float]:
        values: dict[str, float] = {}
        with suppress(OSError, ValueError):
            disk = shutil.disk_usage(self.folder)
            values["disk_usage_percentage"] = 100 * disk.used / disk.total
            values["disk_available_megabytes"] = disk.free / 1e6
        before = self._times
        self._times = _cpu_times()
        if passed := sum(self._times) - sum(before):
            idle = sum(self._times[IDLE]) - sum(before[IDLE])
            values["cpu_utilization_percentage"] = 100 * (1 - idle / passed)
        with suppress(OSError, ValueError, KeyError):
            lines = (line.split() for line in MEMORY.read_text().splitlines())
            kilobytes = {words[0]: int(words[1]) for words in lines if len(words) > 1}
            used = kilobytes["MemTotal:"] - kilobytes["MemAvailable:"]
            total = kilobytes["MemTotal:"]
            values["system_memory_usage_megabytes"] = used * 1024 / 1e6
            values["system_memory_usage_percentage"] = 100 * used / total
        values |= self.others()
        return {f"{PREFIX}{name}": round(value, 1) for name, value in values.items()}


def _cpu_times() -> list[int]:
    """Ticks that all cores spent since boot as user, nice, system, idle and so on; empty where /proc does not exist."""
    with suppress(OSError, ValueError, IndexError):
        return [int(word) for word in STAT.read_text().splitlines()[0].split()[1:9]]
    return []
