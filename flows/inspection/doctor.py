"""Checks whether this machine, its settings and its servers can do the work, and what to do if not."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from infra.errors import BadConfiguration, Fault
from infra.guards.address_secrets import public_address, public_text
from infra.launch.ssh import ssh_queue
from infra.processes.compute import load_remark
from infra.servers.credentials import read_credentials
from infra.servers.environment import server_configured
from infra.servers.mlflow_sqlite import check_database
from infra.servers.service_settings import running_service
from infra.site import Site
from infra.store.bucket_probe import probe
from infra.store.s3_client import Bucket

Verdict = Literal["ok", "warning", "failure"]
GIB = 2**30
LITTLE_MEMORY = 4 * GIB
LEAST_MEMORY = GIB
LITTLE_DISK = 10 * GIB
LEAST_DISK = GIB
ANSWER_SECONDS = 5.0
MAX_SKEW_SECONDS = 900.0
"""S3 refuses requests if the clock is off by more."""
CGROUP = Path("/sys/fs/cgroup")
GPU = Path("/dev/nvidia0")


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""
    """What to do; empty if all is well."""


def examine(site: Site) -> Iterator[Check]:
    """Yield every check in display order; slow checks of servers come last."""
    yield Check("python", "ok", f"{platform.python_version()}, {sys.executable}")
    yield _torch(site)
    yield _cores(site)
    yield _memory()
    yield _disk(site.root)
    yield from _servers(site)
    yield from _mirrors(site)
    if site.launcher == "ssh":
        yield _far_machine()
    if site.remote:
        yield _bucket(site.remote)


def _torch(site: Site) -> Check:
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check("torch", "failure", f"{error}", "make a new environment: `make clean setup`")
    cuda = torch.version.cuda
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind = f"CUDA {cuda}, {gpus} GPUs" if cuda else "without CUDA"
    capability = torch.backends.cpu.get_cpu_capability()
    found = f"{torch.__version__}, {kind}, {capability}, {site.threads_each} threads in each process"
    if platform.machine() == "x86_64" and capability == "DEFAULT":
        advice = "without AVX2 training takes several times as long: use another machine"
        return Check("torch", "warning", found, advice)
    if GPU.exists() and not cuda:
        return Check("torch", "warning", found, "this machine has a GPU: install a build of torch with CUDA to use it")
    if GPU.exists() and not gpus:
        return Check("torch", "warning", found, "the GPU's driver is missing or too old for this build of torch")
    if site.device == "cuda" and not gpus and site.launcher == "local":
        advice = "--site gpu needs a GPU here, or elsewhere with REPRO_LAUNCHER"
        return Check("torch", "failure", found, advice)
    return Check("torch", "ok", found)


def _cores(site: Site) -> Check:
    cores = len(os.sched_getaffinity(0))
    wanted = site.threads_each * (site.ranks // site.nodes)
    quota = _cpu_quota()
    found = f"{cores}" + (f", of which this container may use {quota:.1f}" if quota else "")
    usable = min(cores, max(1, int(quota))) if quota else cores
    if site.launcher == "local" and wanted > usable:
        each = max(1, usable // site.ranks)
        advice = f"{wanted} threads would compute at once: set REPRO_THREADS={each} (REPRO_RANKS is {site.ranks})"
        return Check("cores", "warning", found, advice)
    if load := load_remark():
        return Check("cores", "warning", f"{found}; {load}", "other programs slow it down: end them, or wait")
    return Check("cores", "ok", found)


def _cpu_quota() -> float:
    """Return the cores that the container may use; 0 without a limit."""
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return 0.0 if quota == "max" else float(quota) / float(period)
    except (OSError, ValueError):
        return 0.0


def _memory() -> Check:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return Check("memory", "ok", "unknown here")
    fields = {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(":") for line in lines)}
    free = fields["MemAvailable"]
    whole = fields["MemTotal"]
    try:
        limit = int((CGROUP / "memory.max").read_text())
        kinds = CGROUP / "memory.stat"
        used = dict(line.split() for line in kinds.read_text().splitlines()) if kinds.exists() else {}
        cached = int(used.get("inactive_file", 0))  # files that the kernel drops where memory is needed
        free = min(free, limit - int((CGROUP / "memory.current").read_text()) + cached)
        whole = min(whole, limit)
    except (OSError, ValueError):  # no container, or no limit
        pass
    found = f"{free / GIB:.1f} of {whole / GIB:.1f} GiB free"
    if free < LEAST_MEMORY:
        return Check("memory", "failure", found, "the demo needs 1 GiB: end other programs, or use a larger machine")
    if free < LITTLE_MEMORY:
        return Check("memory", "warning", found, "enough for small models; for others set REPRO_MICRO_BATCH_TOKENS")
    return Check("memory", "ok", found)


def _disk(root: Path) -> Check:
    there = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.exists())
    if not there.is_dir():
        return Check("disk", "failure", f"{there} is a file", "set REPRO_ROOT to a folder")
    free = shutil.disk_usage(there).free
    found = f"{free / GIB:.1f} GiB free for {root.absolute()}"
    if not os.access(there, os.W_OK):
        return Check("disk", "warning", f"{found}, read-only", "to run anything, set REPRO_ROOT to a writable folder")
    if free < LEAST_DISK:
        return Check("disk", "failure", found, "free some space (`repro gc` lists what may go), or set REPRO_ROOT")
    if free < LITTLE_DISK:
        return Check("disk", "warning", found, "enough for small corpora; WMT14 needs some 50 GiB with its checkpoints")
    return Check("disk", "ok", found)


def _servers(site: Site) -> Iterator[Check]:
    service = running_service(site.root)
    if service and service.closed:
        yield _credentials()
    own = service.prefect if service else ""
    prefect = os.environ.get("PREFECT_API_URL") or own
    advice = "start it, or `repro up` and unset PREFECT_API_URL" if prefect != own else "see `repro status`"
    if prefect:
        yield _server("prefect", f"{prefect.rstrip('/')}/health", advice)
    elif server_configured():
        yield Check("prefect", "ok", "the server of Prefect's active profile (not asked)")
    else:
        yield Check("prefect", "ok", "no server is configured: a run starts one of its own")
    if site.tracking_uri.startswith(("http://", "https://")):
        advice = "see `repro status`" if service else "start it, or unset MLFLOW_TRACKING_URI"
        yield _server("mlflow", f"{site.tracking.rstrip('/')}/health", advice)
        return
    try:
        check_database(site.tracking)
        yield Check("mlflow", "ok", f"no server: {public_address(site.tracking)}")
    except Fault as error:
        yield Check("mlflow", "failure", f"{error}", "start the service, or restore the file from a backup")


def _credentials() -> Check:
    try:
        if read_credentials(os.environ):
            return Check("credentials", "ok", "set, as the service requires")
    except BadConfiguration as error:
        return Check("credentials", "failure", f"{error}", "write the line user:password to a file of mode 0600")
    advice = "set REPRO_AUTH or REPRO_AUTH_FILE as for `repro up`"
    return Check("credentials", "failure", "the service needs credentials, but none are set", advice)


def _server(name: str, address: str, advice: str) -> Check:
    import httpx

    parts = urlsplit(address)
    shown = public_address(address)
    try:
        # Without user and password: a response of any status is enough, also one that asks for them.
        httpx.head(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), timeout=ANSWER_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return Check(name, "failure", public_text(f"{shown} does not answer: {error}", address), advice)
    return Check(name, "ok", f"{shown} answers")


def _mirrors(site: Site) -> Iterator[Check]:
    if not site.mirrors:
        yield Check("mirrors", "ok", "none: text is read from its original addresses")
    for mirror in site.mirrors:
        advice = "correct the address in REPRO_MIRRORS, or remove it"
        if mirror.startswith(("http://", "https://")):
            yield _server("mirror", mirror, advice)
        elif "://" in mirror:
            yield Check("mirror", "ok", f"{public_address(mirror)} (not asked)")
        elif Path(mirror).is_dir():
            yield Check("mirror", "ok", mirror)
        else:
            yield Check("mirror", "failure", f"there is no folder {mirror}", advice)


def _far_machine() -> Check:
    try:
        return Check("ssh", "ok", ssh_queue().examine())
    except Fault as error:
        return Check("ssh", "failure", f"{error}", "see GPU nodes in docs/deployment.md")


def _bucket(address: str) -> Check:
    advice = "see A bucket in docs/deployment.md"
    try:
        bucket = Bucket(address)
        skew = bucket.clock_offset()
        if abs(skew) >= MAX_SKEW_SECONDS:
            found = f"this machine's clock is {abs(skew):.0f} s {'behind' if skew > 0 else 'ahead'}"
            return Check("bucket", "failure", found, "set this machine's clock, or the server's, by NTP")
        if wrong := probe(bucket):
            return Check("bucket", "failure", f"{bucket.url('')}: {wrong}", f"use another store; {advice}")
    except Fault as error:
        return Check("bucket", "failure", f"{error}", advice)
    return Check("bucket", "ok", f"{address} can be read and written")
