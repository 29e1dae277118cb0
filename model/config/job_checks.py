"""What a site's settings do not support, checked when a run is planned and again when its training begins.

``on_cpu`` says that the device is a CPU for certain: a plan does not know what ``auto`` will find elsewhere.
"""

from . import Training
from .keying import require


def check_whole_updates(
    training: Training, compiled: str, *, on_cpu: bool, ranks: int, micro_batch_tokens: int
) -> None:
    """Raise ValueError naming what REPRO_COMPILE=update does not support; other values are not looked at."""
    if compiled != "update":
        return

    def needed(holds: bool, where: str) -> None:
        require(holds, "site.compile (REPRO_COMPILE)", compiled, f"auto, always or never {where}")

    needed(not on_cpu, "on a CPU")
    needed(training.batching == "packed", "where training.batching is not packed")
    needed(not training.skip_nonfinite, "where training.skip_nonfinite is above 0")
    covers = training.attention_coverage_encoder or training.attention_coverage_cross
    needed(not covers, "where training.attention_coverage_encoder or _cross is above 0")
    needed(ranks == 1, "with several ranks")
    needed(not micro_batch_tokens, "where REPRO_MICRO_BATCH_TOKENS is set")
