"""Run a job of a stage: start it with the site's launcher on locked GPUs, pass its metrics to MLflow and display."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from infra.launch.job import JobSpec, Launcher
from infra.launch.kubernetes import kubernetes_launcher
from infra.launch.local import LocalLauncher
from infra.launch.slurm import slurm_launcher
from infra.launch.ssh import ssh_launcher
from infra.processes.compute import load_remark
from infra.processes.gpu_locks import lock_gpus
from infra.site import Site
from infra.tracking.metrics_tail import MetricsTail
from model.config import STRICT_ENVIRONMENT
from model.metric_names import DEV_PERPLEXITY, LOSS
from tasks.engine.progress import describe_metrics
from tasks.engine.run_settings import RunSettings
from tasks.engine.stage import JobRequest, StageCall

LAUNCHERS: dict[str, Callable[[], Launcher]] = {
    "local": LocalLauncher,
    "ssh": ssh_launcher,
    "slurm": slurm_launcher,
    "kubernetes": kubernetes_launcher,
}
"""Constructors by ``Site.launcher``. They raise BadConfiguration if the environment lacks a setting."""
RUN_CURVES = (LOSS, DEV_PERPLEXITY)
"""Metrics of the training that are also logged to MLflow's run of the whole pipeline."""
METRICS = "metrics.jsonl"
PASSED = ("compile", "packed_attention", "micro_batch_tokens", "log_seconds", "resume_seconds", "rank_timeout_seconds")
"""Fields of a site that its jobs get unchanged."""


def job_spec(site: Site, request: JobRequest) -> JobSpec:
    """The job of a request, with the site's settings.

    With strict numerics the job runs in one thread on the CPU, in ``STRICT_ENVIRONMENT``.
    """
    distributed = request.distributed
    ranks, nodes = (site.ranks, site.nodes) if distributed else (1, 1)
    threads = site.threads_each if distributed else site.threads_each * (site.ranks // site.nodes)
    settings = {"device": site.device, "threads": threads} | {name: getattr(site, name) for name in PASSED}
    job = JobSpec(
        request.module, request.config, request.inputs, request.out, settings, ranks, distributed, nodes, threads
    )
    if request.numerics == "strict":
        settings |= {
            "device": "cpu" if site.device == "auto" else site.device,  # the job refuses cuda
            "threads": 1,
            "compile": "never",
            "packed_attention": "torch",
            "micro_batch_tokens": 0,  # strict numerics divide each update into fixed shares
        }
        job = replace(job, threads=1, environment=STRICT_ENVIRONMENT)
    return job


def run_job(
    settings: RunSettings,
    launcher: Launcher,
    progress: Callable[[StageCall, float, float, str], None],
    call: StageCall,
    run_id: str,
    lock: int,
    request: JobRequest,
) -> None:
    """Run a job of a stage to its end and log its metrics under ``run_id``. Raises the Fault that the job ends with.

    The job inherits the file descriptor ``lock``.
    """
    site = settings.site
    label = call.label
    job = job_spec(site, request)
    is_here = site.launcher == "local"
    if is_here and (load := load_remark()):
        settings.display.say(f"{label}: {load}: other programs slow it down")
    # Other launchers get their GPUs from the scheduler.
    gpus = site.gpus if call.stage.needs == "gpu" and is_here and job.site["device"] != "cpu" else ()

    tail = MetricsTail(request.out / METRICS)
    of_parent = RUN_CURVES if call.stage.name == "train" and not call.item else ()

    def poll() -> None:
        settings.store.share(request.out)
        rows = tail.read()
        if rows:
            with settings.tracker_lock:
                settings.tracker.log_rows(run_id, rows, of_parent)
            measured = [row for row in rows if "facts" not in row]  # whose row says that all is done
            if measured:
                progress(call, measured[-1].get("done", 0), measured[-1].get("total", 0), describe_metrics(measured))

    waiting = partial(settings.display.say, f"{label}: waiting for a GPU of this machine")
    with lock_gpus(gpus, job.ranks, waiting) as locked:
        job = replace(job, gpus=tuple(locked), pass_fds=(lock, *locked.values()))
        launcher.run(job, poll)
