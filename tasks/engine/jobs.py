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
from model.metric_names import DEV_PERPLEXITY, LOSS
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
METRICS = "metrics.jsonl"


class JobRunner:
    """Runs jobs of a site. Several threads may run a job each."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.launcher = LAUNCHERS[settings.site.launcher]()
        if isinstance(self.launcher, QueueLauncher):
            self.launcher.say = settings.display.say

    def run(self, call: StageCall, run_id: str, lock: int, job: JobSpec) -> None:
        """Run ``job`` and log its metrics under ``run_id``; raises the Fault that the job ends with.

        The job inherits the file descriptor ``lock``.
        """
        settings = self.settings
        site = settings.site
        display = settings.display
        tail = MetricsTail(job.out / METRICS)
        is_here = site.launcher == "local"
        of_parent = RUN_CURVES if call.stage.name == "train" and not call.item else ()

        def poll() -> None:
            settings.store.share(job.out)
            rows = tail.read()
            if rows:
                with settings.tracker_lock:
                    settings.tracker.log_rows(run_id, rows, of_parent)
                last = rows[-1]
                display.progress(call, last.get("done", 0), last.get("total", 0), describe_metrics(rows))
                settings.watch(call, rows)

        def waiting() -> None:
            display.say(f"{call.label}: waiting for a GPU of this machine")

        if is_here and (load := load_remark()):
            display.say(f"{call.label}: {load}: other programs slow it down")
        # Other launchers get their GPUs from the scheduler.
        gpus = site.gpus if call.stage.needs == "gpu" and is_here else ()
        with lock_gpus(gpus, job.ranks, waiting) as locked:
            self.launcher.run(replace(job, gpus=locked.names, pass_fds=(lock, *locked.locks)), poll)
