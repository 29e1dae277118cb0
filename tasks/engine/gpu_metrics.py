"""Use of this machine's GPUs while a job runs, under the names of MLflow's own sampler."""

from model.training.gpu_driver import Gpu, GpuDriver


class GpuMetrics:
    """Samples memory, utilisation and power of each GPU; what a GPU does not report is omitted."""

    def __init__(self, driver: GpuDriver) -> None:
        self.gpus = driver.by_number()

    def sample(self) -> dict[str, float]:
        """``gpu_0_utilization_percentage`` and its like, by the driver's number of the GPU; watts, 1e6 bytes."""
        return {
            f"gpu_{number}_{name}": value for number, gpu in self.gpus.items() for name, value in _sample(gpu).items()
        }


def _sample(gpu: Gpu) -> dict[str, float]:
    found: dict[str, float] = {}
    if (memory := gpu.memory) and memory.total:
        found["memory_usage_megabytes"] = memory.used / 1e6
        found["memory_usage_percentage"] = 100 * memory.used / memory.total
    if (use := gpu.use_percentage) is not None:
        found["utilization_percentage"] = use
    if (power := gpu.milliwatts) is not None:
        found["power_usage_watts"] = power / 1e3
        if most := gpu.most_milliwatts:
            found["power_usage_percentage"] = 100 * power / most
    return found
