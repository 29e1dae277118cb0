"""Run a job of a stage: start it by the site's launcher on locked GPUs, pass its metrics to MLflow and the display."""

from collections.abc import Callable
from dataclasses import replace

from infra.launch.batch_queue import QueueLauncher
from infra.launch.job import JobSpec, Launcher
from infra.launch.kubernetes import kubernetes_launcher
from infra.launch.local import LocalLauncher
from infra.launch.slurm import slurm_launcher
from infra.processes.compute import load_remark
from infra.processes.gpu_locks import lock_gpus
from infra.tracking.metrics_tail import MetricsTail
from infra.tracking.system_metrics import SystemMetrics
from model.metric_names import DEV_PERPLEXITY, LOSS
from model.training.gpu_driver import gpu_driver
from tasks.engine.gpu_metrics import GpuMetrics
from tasks.engine.locked_tracker import LockedTracker
from tasks.engine.progress import describe_metrics
from tasks.engine.run_settings import RunSettings
from tasks.engine.stage import StageCall

LAUNCHERS: dict[str, Callable[[], Launcher]] = {
    "local": LocalLauncher,
    "slurm": slurm_launcher,
    "kubernetes": kubernetes_launcher,
}
"""Constructors by ``Site.launcher``."""
RUN_CURVES = (LOSS, DEV_PERPLEXITY)
"""Metrics of the training that MLflow's run of the whole pipeline has too."""


class JobRunner:
    """Runs jobs of a site. Several threads may run a job each."""

    def __init__(self, settings: RunSettings, tracker: LockedTracker) -> None:
        self.settings = settings
        self.tracker = tracker
        self.launcher = LAUNCHERS[settings.site.launcher]()
        if isinstance(self.launcher, QueueLauncher):
            self.launcher.say = settings.display.say

    def run(self, call: StageCall, run_id: str, lock: int, job: JobSpec) -> None:
        """Run ``job`` and log its metrics under ``run_id``; raises the Fault that the job ends with.

        The job inherits the file descriptor ``lock``.
        """
        site = self.settings.site
        display = self.settings.display
        tail = MetricsTail(job.out / "metrics.jsonl")
        is_here = site.launcher == "local"
        machine = SystemMetrics(job.out, GpuMetrics(gpu_driver()).sample) if is_here else None
        of_parent = RUN_CURVES if call.stage.name == "train" and not call.item else ()
        done = 0.0

        def poll() -> None:
            nonlocal done
            self.settings.store.share(job.out)
            rows = tail.read()
            done = rows[-1].get("done", done) if rows else done
            samples = machine.rows(done) if machine else []
            if rows or samples:
                with self.tracker as tracker:
                    tracker.log_rows(run_id, [*rows, *samples], of_parent)
            if rows:
                last = rows[-1]
                display.progress(call, last.get("done", 0), last.get("total", 0), describe_metrics(rows))
                self.settings.watch(call, rows)

        def waiting() -> None:
            display.say(f"{call.label}: waiting for a GPU of this machine")

        if is_here and (load := load_remark()):
            display.say(f"{call.label}: {load}: other programs slow it down")
        # Other launchers get their GPUs from the scheduler.
        gpus = site.gpus if call.stage.needs == "gpu" and is_here else ()
        with lock_gpus(gpus, job.ranks, waiting) as locked:
            self.launcher.run(replace(job, gpus=locked.names, pass_fds=(lock, *locked.locks)), poll)
