"""Where a run is computed: folders, mirrors, processes, addresses. No setting here is part of a key."""

import hashlib
import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from infra.errors import BadConfiguration
from infra.processes.gpu_locks import visible_gpus
from infra.processes.workers import Workers, executor
from infra.servers.environment import configure_libraries
from infra.servers.loopback import on_loopback
from infra.servers.service_settings import running_service, uses_postgresql
from infra.servers.sqlite_addresses import sqlite_uri
from infra.store.files import expanded, user_cache
from infra.store.local import LocalStore
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket, check_s3_url
from infra.store.store import Store

Device = Literal["auto", "cpu", "cuda"]
Compile = Literal["auto", "always", "never", "update"]
PackedAttention = Literal["torch", "own"]
LauncherName = Literal["local", "ssh", "slurm", "kubernetes"]
NUMBERS = ("cache_bytes", "nodes", "ranks", "threads", "workers", "micro_batch_tokens")
WORDS = {"device": Device, "launcher": LauncherName, "compile": Compile, "packed_attention": PackedAttention}
"""Fields of a site that ``REPRO_<FIELD>`` sets: NUMBERS to whole numbers, WORDS to one of some words."""


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Site:
    """Where and with which resources to compute. ``Site.named`` applies the environment's settings to a site."""

    root: Path = Path(".repro")
    """The folder of all state (REPRO_ROOT); with ``remote``, this machine's state and the cache (REPRO_CACHE)."""
    remote: str = ""
    """``s3://bucket/prefix`` (REPRO_ROOT) of artifacts and run records; empty: they are in ``root``."""
    cache_bytes: int = 50 * 10**9
    """Size limit of the local cache of a remote store (REPRO_CACHE_BYTES)."""
    mirrors: tuple[str, ...] = ()
    """Folders or URLs searched before upstream (REPRO_MIRRORS, separated by spaces)."""
    tracking_uri: str = ""
    """MLflow's address (MLFLOW_TRACKING_URI, or the running service); empty: a SQLite file under ``root``."""
    tracking_file: str = ""
    """The SQLite file of the running service, if its MLflow is in use."""
    launcher: LauncherName = "local"
    """How jobs are started (REPRO_LAUNCHER). With slurm and kubernetes, other machines need ``root`` and this project
    at the same paths."""
    nodes: int = 1
    """Machines of one training (REPRO_NODES)."""
    ranks: int = 1
    """Training processes on all nodes together (REPRO_RANKS)."""
    threads: int = 0
    """Threads of each process (REPRO_THREADS); 0 divides this machine's core count by a node's ranks."""
    workers: int = 1
    """Processes that prepare text (REPRO_WORKERS)."""
    dask: str = ""
    """Address of a Dask scheduler (REPRO_DASK). Its workers then prepare the text. They need ``root`` at the same path
    and this project and its libraries in the same versions."""
    device: Device = "auto"
    """Where jobs compute (REPRO_DEVICE)."""
    gpus: tuple[str, ...] = ()
    """GPUs of this machine, each for one job at a time (REPRO_GPUS, separated by commas; default: CUDA's)."""
    strict: bool = False
    """A cached artifact counts only if the present code and libraries made it (REPRO_STRICT=1)."""
    compile: Compile = "auto"
    """Whether to compile the layers (REPRO_COMPILE). auto: on GPUs. update: compile the whole update and replay it as
    one CUDA graph, which is experimental (docs/gpu.md)."""
    packed_attention: PackedAttention = "torch"
    """The attention operator of a training with packed sentences (REPRO_PACKED_ATTENTION). own: experimental; it is
    compared with torch's operator before the first update (docs/gpu.md)."""
    micro_batch_tokens: int = 0
    """Maximum tokens on each side per forward pass of a rank (REPRO_MICRO_BATCH_TOKENS); 0: a rank's whole share."""
    log_seconds: float = 2.0
    resume_seconds: float = 60.0
    """Seconds between checkpoints that serve only to resume after a kill. Slow writes make the pause longer."""
    rank_timeout_seconds: int = 120
    """How long training processes wait for a slow, stuck or dead one (REPRO_RANK_TIMEOUT). It must be longer than the
    main process works alone, for example while it writes a checkpoint."""

    def __post_init__(self) -> None:
        for name in ("ranks", "nodes", "workers", "rank_timeout_seconds"):
            if getattr(self, name) < 1:
                raise BadConfiguration(f"site.{name} is {getattr(self, name)}, allowed is a whole number of at least 1")
        if self.ranks % self.nodes:
            allowed = f"a whole number of at least 1 that divides the {self.ranks} ranks (REPRO_RANKS) evenly"
            raise BadConfiguration(f"site.nodes is {self.nodes}, allowed is {allowed}")
        if self.nodes > 1 and self.launcher == "local":
            raise BadConfiguration(f"site.nodes is {self.nodes}, allowed is 1: the launcher 'local' uses one machine")
        if self.threads < 0:
            raise BadConfiguration(f"site.threads is {self.threads}, allowed is 0 (shared out) or above")

    @property
    def tracking(self) -> str:
        """MLflow's address. Raises BadConfiguration if its database is that of a service which is down."""
        if not self.tracking_uri and uses_postgresql(self.root):
            raise BadConfiguration(
                f"the versions of {self.root} are in PostgreSQL: start `repro up` as before, or set MLFLOW_TRACKING_URI"
            )
        return self.tracking_uri or sqlite_uri(self.root / "mlflow.db")

    @property
    def registry(self) -> str:
        """Where to list versions: the local file if there is one, because a server needs seconds for a thousand."""
        return sqlite_uri(Path(self.tracking_file)) if self.tracking_file else self.tracking

    @property
    def shares_tracking(self) -> bool:
        """Whether all users of the store share MLflow. A server on loopback, or a file, belongs to one machine."""
        own = not self.tracking_uri or on_loopback(urlsplit(self.tracking_uri).hostname or "")
        return not (self.remote and own)

    @property
    def threads_each(self) -> int:
        return self.threads or max(1, _cores() // (self.ranks // self.nodes))

    @property
    def place(self) -> str:
        """Describes where jobs run."""
        if self.launcher == "local":
            return "on this machine"
        return f"by {self.launcher}, {self.ranks} ranks on {self.nodes} node{'s' * (self.nodes > 1)}"

    def executor(self, at_once: int = 1) -> AbstractContextManager[Workers]:
        """Return a context manager of the workers that prepare text. ``at_once``: see ``workers.executor``."""
        cores = self.threads or _cores()
        return executor(self.workers, max(1, cores // self.workers), self.dask, at_once)

    @staticmethod
    def named(name: str = "local") -> "Site":
        """Return a site of ``SITES`` with the environment's settings. Raises BadConfiguration for an unknown name."""
        if name not in SITES:
            raise BadConfiguration(f"unknown site {name!r}, known are: {', '.join(SITES)}")
        site = SITES[name]
        read: dict[str, Any] = {name: _number(f"REPRO_{name.upper()}", getattr(site, name)) for name in NUMBERS}
        read |= {name: _word(f"REPRO_{name.upper()}", getattr(site, name), words) for name, words in WORDS.items()}
        root = os.environ.get("REPRO_ROOT") or f"{_nearest(site.root)}"
        remote = check_s3_url(root) if "://" in root else ""
        place = _cache_of(remote) if remote else expanded(root)
        if {*"*?["} & {*f"{place}"}:  # polars would read the path as a pattern
            raise BadConfiguration(f"REPRO_ROOT is {place}, allowed is a path without *, ? and [")
        mlflow = os.environ.get("MLFLOW_TRACKING_URI", "")
        if mlflow == sqlite_uri(place / "mlflow.db"):
            mlflow = ""  # `repro up --print-env` prints this without a service; one may run now
        served = None if mlflow else running_service(place)
        return replace(
            site,
            root=place,
            remote=remote,
            mirrors=tuple(os.environ.get("REPRO_MIRRORS", "").split()) or site.mirrors,
            tracking_uri=served.mlflow if served else mlflow or site.tracking_uri,
            tracking_file=served.mlflow_file if served else "",
            dask=os.environ.get("REPRO_DASK") or site.dask,
            gpus=visible_gpus(os.environ) if read["device"] in ("auto", "cuda") else (),
            strict=_word("REPRO_STRICT", "01"[site.strict], Literal["0", "1"]) == "1",
            rank_timeout_seconds=_number("REPRO_RANK_TIMEOUT", site.rank_timeout_seconds),
            **read,
        )


def configured_site(name: str = "local") -> Site:
    """Return the site of this name, and make Prefect and MLflow keep their state in its root."""
    site = Site.named(name)
    configure_libraries(site.root)
    return site


SITES = {"local": Site(), "gpu": Site(device="cuda")}


def _nearest(root: Path) -> Path:
    """Return ``root`` in the working folder or the nearest folder above that has one, as git finds its repository."""
    here = Path.cwd()
    nearest = next((folder for folder in (here, *here.parents) if (folder / root).is_dir()), here)
    return root if nearest == here else nearest / root


def _cache_of(remote: str) -> Path:
    """Return the local folder of a remote root. Each root has its own, so several roots can share one REPRO_CACHE."""
    cache = Path(os.environ.get("REPRO_CACHE") or user_cache("stores"))
    name = remote.partition("://")[2]
    return cache / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _number(variable: str, otherwise: int) -> int:
    value = os.environ.get(variable) or f"{otherwise}"
    if not value.isdecimal():
        raise BadConfiguration(f"{variable} is {value!r}, allowed is a whole number")
    return int(value)


def _word(variable: str, otherwise: str, allowed: Any) -> str:
    value = os.environ.get(variable) or otherwise
    if value not in get_args(allowed):
        raise BadConfiguration(f"{variable} is {value!r}, allowed is {', '.join(get_args(allowed))}")
    return value


def open_store(site: Site) -> Store:
    """Open the store of a site: its folder, or its bucket."""
    return S3Store(site.root, Bucket(site.remote), site.cache_bytes) if site.remote else LocalStore(site.root)
