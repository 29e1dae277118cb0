"""Where a run is computed: folders, mirrors, processes, addresses. Nothing here enters a key."""

import hashlib
import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from infra.errors import BadConfiguration
from infra.processes.gpu_locks import visible_gpus
from infra.processes.workers import Workers, executor
from infra.servers import addresses
from infra.servers.loopback import on_loopback
from infra.servers.sqlite_addresses import sqlite_uri
from infra.store.local import Store
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket, check_s3_url

Compile = Literal["auto", "always", "never"]
LauncherName = Literal["local", "slurm", "kubernetes"]
Word = TypeVar("Word", bound=str)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Site:
    """A place to compute. ``Site.named`` gives one of the known places with the environment's settings."""

    root: Path = Path(".repro")
    """Holds all state (REPRO_ROOT); with ``remote``, what concerns this machine alone, and the cache (REPRO_CACHE)."""
    remote: str = ""
    """``s3://bucket/prefix`` (REPRO_ROOT), where artifacts and records of runs are; empty: under ``root`` too."""
    cache_bytes: int = 50 * 10**9
    """How much of a remote store is kept on this machine's disk (REPRO_CACHE_BYTES)."""
    mirrors: tuple[str, ...] = ()
    """Folders or URLs searched before upstream (REPRO_MIRRORS, separated by spaces)."""
    tracking_uri: str = ""
    """MLflow's address (MLFLOW_TRACKING_URI, or the service that is up); empty: a SQLite file under ``root``."""
    tracking_file: str = ""
    """The SQLite file of the service that is up, if that is the MLflow in use."""
    launcher: LauncherName = "local"
    """Who starts jobs (REPRO_LAUNCHER). Other machines need ``root`` and this project at the same paths."""
    nodes: int = 1
    """Machines that one training is divided among (REPRO_NODES)."""
    ranks: int = 1
    """Training processes (REPRO_RANKS), on all nodes together."""
    threads: int = 0
    """Threads of each process (REPRO_THREADS); 0 shares the cores among a node's ranks, as if it had this machine's."""
    workers: int = 1
    """Processes that prepare text (REPRO_WORKERS)."""
    dask: str = ""
    """Address of a Dask scheduler (REPRO_DASK), whose workers prepare text instead; they see ``root`` by the same path
    and have this project installed, in the same versions."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: tuple[str, ...] = ()
    """GPUs of this machine, each for one job at a time (REPRO_GPUS, separated by commas; else what CUDA is shown)."""
    gpu_pool: str = ""
    """Work pool whose workers make what needs a GPU (REPRO_GPU_POOL); empty: whoever carries out the run does."""
    compile: Compile = "auto"
    """Compile the layers (REPRO_COMPILE); auto: on GPUs, where a training is long enough for it to pay."""
    micro_batch_tokens: int = 0
    """Most target pieces computed at once on one rank (REPRO_MICRO_BATCH_TOKENS); 0 takes a rank's whole part."""
    log_seconds: float = 2.0
    resume_seconds: float = 60.0
    """Seconds between checkpoints that serve only to go on after a kill; more where writing one takes long."""
    rank_timeout_seconds: int = 120
    """How long training processes wait for one that is slow, stuck or gone (REPRO_RANK_TIMEOUT): longer than the
    leading one alone ever works, as it does when it writes a checkpoint."""

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise BadConfiguration(f"site.ranks is {self.ranks}, allowed is a whole number of at least 1")
        if self.nodes < 1 or self.ranks % self.nodes:
            allowed = f"a whole number of at least 1 that divides the {self.ranks} ranks (REPRO_RANKS) evenly"
            raise BadConfiguration(f"site.nodes is {self.nodes}, allowed is {allowed}")
        if self.nodes > 1 and self.launcher == "local":
            raise BadConfiguration(f"site.nodes is {self.nodes}, but the launcher 'local' knows this machine alone")
        if self.workers < 1:
            raise BadConfiguration(f"site.workers is {self.workers}, allowed is a whole number of at least 1")
        if self.rank_timeout_seconds < 1:
            seconds = self.rank_timeout_seconds
            raise BadConfiguration(f"site.rank_timeout_seconds is {seconds}, allowed is a whole number of at least 1")
        if self.threads < 0:
            raise BadConfiguration(f"site.threads is {self.threads}, allowed is 0 (shared out) or above")

    @property
    def tracking(self) -> str:
        return self.tracking_uri or sqlite_uri(self.root / "mlflow.db")

    @property
    def registry(self) -> str:
        """Where versions are listed: the file itself, if it is here, as a server takes seconds for a thousand."""
        return sqlite_uri(Path(self.tracking_file)) if self.tracking_file else self.tracking

    @property
    def shares_tracking(self) -> bool:
        """Whether all who share the store share MLflow too: a server on loopback, or no address, is a machine's own."""
        own = not self.tracking_uri or on_loopback(urlsplit(self.tracking_uri).hostname or "")
        return not (self.remote and own)

    @property
    def threads_each(self) -> int:
        return self.threads or max(1, _cores() // (self.ranks // self.nodes))

    @property
    def place(self) -> str:
        """Where jobs run, in words."""
        if self.launcher == "local":
            return "on this machine"
        return f"by {self.launcher}, {self.ranks} ranks on {self.nodes} node{'s' * (self.nodes > 1)}"

    def executor(self) -> AbstractContextManager[Workers]:
        """Who prepares text: use as a context."""
        cores = self.threads or _cores()
        return executor(self.workers, max(1, cores // self.workers), self.dask)

    @staticmethod
    def named(name: str = "local") -> "Site":
        """One of ``SITES`` as the environment completes it; raises BadConfiguration naming what is known."""
        if name not in SITES:
            raise BadConfiguration(f"unknown site {name!r}, known are: {', '.join(SITES)}")
        site = SITES[name]
        root = os.environ.get("REPRO_ROOT") or f"{site.root}"
        remote = check_s3_url(root) if "://" in root else ""
        place = _cache_of(remote) if remote else Path(root)
        served = None if os.environ.get("MLFLOW_TRACKING_URI") else addresses.running_addresses(place)
        return replace(
            site,
            root=place,
            remote=remote,
            cache_bytes=_number("REPRO_CACHE_BYTES", site.cache_bytes),
            mirrors=tuple(os.environ.get("REPRO_MIRRORS", "").split()) or site.mirrors,
            tracking_uri=served.mlflow if served else os.environ.get("MLFLOW_TRACKING_URI") or site.tracking_uri,
            tracking_file=served.file if served else "",
            launcher=_word("REPRO_LAUNCHER", site.launcher, LauncherName),
            nodes=_number("REPRO_NODES", site.nodes),
            ranks=_number("REPRO_RANKS", site.ranks),
            threads=_number("REPRO_THREADS", site.threads),
            workers=_number("REPRO_WORKERS", site.workers),
            dask=os.environ.get("REPRO_DASK") or site.dask,
            gpus=visible_gpus(os.environ) if site.device != "cpu" else (),
            gpu_pool=os.environ.get("REPRO_GPU_POOL") or site.gpu_pool,
            compile=_word("REPRO_COMPILE", site.compile, Compile),
            micro_batch_tokens=_number("REPRO_MICRO_BATCH_TOKENS", site.micro_batch_tokens),
            rank_timeout_seconds=_number("REPRO_RANK_TIMEOUT", site.rank_timeout_seconds),
        )


SITES = {
    "local": Site(),
    "gpu": Site(device="cuda"),
}


def _cache_of(remote: str) -> Path:
    """The folder of this machine for a remote root: one for each, so that one REPRO_CACHE serves several."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("REPRO_CACHE") or Path(caches) / "repro" / "stores")
    name = remote.partition("://")[2]
    return cache / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _number(variable: str, otherwise: int) -> int:
    value = os.environ.get(variable, "")
    if not value:
        return otherwise
    if not value.isdigit():
        raise BadConfiguration(f"{variable} is {value!r}, allowed is a whole number")
    return int(value)


def _word(variable: str, otherwise: Word, allowed: Any) -> Word:
    value = os.environ.get(variable, "")
    words: dict[str, Word] = {word: word for word in get_args(allowed)} | {"": otherwise}
    if value not in words:
        raise BadConfiguration(f"{variable} is {value!r}, allowed is {', '.join(get_args(allowed))}")
    return words[value]


def open_store(site: Site) -> Store:
    """The store of a site."""
    return S3Store(site.root, Bucket(site.remote), site.cache_bytes) if site.remote else Store(site.root)
