"""Use of this machine's GPUs as their driver (NVML) reports it, under the names of MLflow's own sampler.

MLflow's sampler needs the package ``nvidia-ml-py``; the driver's library is there wherever a GPU is.
"""

import ctypes
from typing import Any

LIBRARY = "libnvidia-ml.so.1"


class Memory(ctypes.Structure):
    """``nvmlMemory_t``, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Utilization(ctypes.Structure):
    """``nvmlUtilization_t``: the percentage of the last sample period in which a kernel ran, or memory was accessed."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class GpuMetrics:
    """Samples memory, utilisation and power of each GPU; what a GPU does not report is omitted.

    ``library`` is NVML, or an object with the same functions, or None for no GPU.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.handles: list[ctypes.c_void_p] = []
        count = ctypes.c_uint(0)
        if self._read("nvmlInit_v2") and self._read("nvmlDeviceGetCount_v2", ctypes.byref(count)):
            self.handles = [ctypes.c_void_p() for _ in range(count.value)]
        for number, handle in enumerate(self.handles):
            self._read("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(handle))

    def sample(self) -> dict[str, float]:
        """``gpu_0_utilization_percentage`` and its like, by the driver's number of the GPU; watts, 1e6 bytes."""
        values: dict[str, float] = {}
        for number, handle in enumerate(self.handles):
            memory, use = Memory(), Utilization()
            power, limit = ctypes.c_uint(0), ctypes.c_uint(0)
            found: dict[str, float] = {}
            if self._read("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory)) and memory.total:
                found["memory_usage_megabytes"] = memory.used / 1e6
                found["memory_usage_percentage"] = 100 * memory.used / memory.total
            if self._read("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(use)):
                found["utilization_percentage"] = use.gpu
            if self._read("nvmlDeviceGetPowerUsage", handle, ctypes.byref(power)):
                found["power_usage_watts"] = power.value / 1e3
                if self._read("nvmlDeviceGetEnforcedPowerLimit", handle, ctypes.byref(limit)) and limit.value:
                    found["power_usage_percentage"] = 100 * power.value / limit.value
            values |= {f"gpu_{number}_{name}": value for name, value in found.items()}
        return values

    def _read(self, name: str, *arguments: Any) -> bool:
        """Call an NVML function; False if the library lacks it or it returns an error."""
        function = getattr(self.library, name, None)
        return function is not None and function(*arguments) == 0


def driver() -> Any:
    """NVML of this machine; None without a driver."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        return None
