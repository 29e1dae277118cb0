"""GPUs as their driver reports them (NVML); torch-free, and without a package: its library is there wherever a GPU is.

What a GPU does not report is None.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

LIBRARY = "libnvidia-ml.so.1"


class GpuDriver:
    """NVML, or an object with the same functions, or None where there is no driver."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.works = self.call("nvmlInit_v2")

    def call(self, name: str, *arguments: Any) -> bool:
        """Call a function; False if the library lacks it or it returns an error."""
        function = getattr(self.library, name, None)
        return function is not None and function(*arguments) == 0

    def by_uuid(self, uuid: str) -> "Gpu | None":
        """None for one that the driver does not know."""
        handle = ctypes.c_void_p()
        found = self.works and self.call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        return Gpu(self, handle) if found else None


@dataclass(frozen=True)
class Gpu:
    """A GPU of the driver."""

    driver: GpuDriver
    handle: ctypes.c_void_p

    @property
    def milliwatts(self) -> int | None:
        return self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint(0))

    @property
    def millijoules(self) -> int | None:
        """Energy since the driver was loaded."""
        return self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong(0))

    @property
    def is_partitioned(self) -> bool:
        """Whether it is divided (MIG): its meters then cover all parts."""
        on = ctypes.c_uint(0)
        pending = ctypes.c_uint(0)
        known = self.driver.call("nvmlDeviceGetMigMode", self.handle, ctypes.byref(on), ctypes.byref(pending))
        return known and bool(on.value)

    def _number(self, name: str, value: ctypes.c_uint | ctypes.c_ulonglong) -> int | None:
        return value.value if self.driver.call(name, self.handle, ctypes.byref(value)) else None


def gpu_driver() -> GpuDriver:
    """That of this machine."""
    try:
        return GpuDriver(ctypes.CDLL(LIBRARY))
    except OSError:
        return GpuDriver(None)
