"""Runs jobs on Kubernetes: an Indexed Job with one pod per node, and a headless Service for torchrun's rendezvous.

    job.manifests.log   the submitted manifests, as JSON

Kubernetes restarts an evicted pod (``DisruptionTarget``), which continues from the newest checkpoint. Any other failure
ends the Job, and the stage decides by the reason. All pods and this machine mount the store's volume at the same path;
the image contains this project. The package ``kubernetes`` is an optional dependency and is imported late.
"""

import json
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration, Fault, NetworkFault, OutOfMemory
from infra.extras import check_installed
from infra.launch.batch_queue import QueueLauncher, QueueStatus, job_name
from infra.launch.job import EXIT, JobSpec, command, variables
from infra.processes import signals

LABEL = "repro/job"
PORT = 29400
REQUEST_SECONDS = 60
"""Time limit of a request. A request is repeated once if the connection breaks."""
DELETE_SECONDS = 60
"""How long ``submit`` waits until an earlier Job of the same name is deleted."""
GRACE_SECONDS = 90
"""Seconds between SIGTERM and SIGKILL: torchrun gives its ranks 30 s, and kubelet counts from before the signal."""
KEPT_SECONDS = 24 * 3600
"""How long Kubernetes keeps a finished Job for inspection."""
FATAL_WAITING_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
)
"""Reasons of a waiting container that do not resolve by themselves."""


@dataclass(frozen=True)
class KubernetesSettings:
    """Namespace, image and volume of the pods."""

    image: str
    """Image with this project, its libraries and ``python`` on the PATH (REPRO_KUBERNETES_IMAGE)."""
    claim: str
    """PersistentVolumeClaim of the store (REPRO_KUBERNETES_CLAIM): ReadWriteMany for several nodes."""
    mount: Path
    """Mount path of the store, here and in the pods (REPRO_KUBERNETES_MOUNT; default: REPRO_ROOT)."""
    namespace: str = "default"
    """REPRO_KUBERNETES_NAMESPACE"""
    memory: str = ""
    """Memory of each pod (REPRO_KUBERNETES_MEMORY), for example ``64Gi``; empty sets no limit."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Additions to the pods' ``spec`` (REPRO_KUBERNETES_POD), as JSON: ``{"nodeSelector": {"gpu": "h100"}}``."""

    def __post_init__(self) -> None:
        for name, value in (("IMAGE", self.image), ("CLAIM", self.claim), ("MOUNT", f"{self.mount}".strip("."))):
            if not value:
                raise BadConfiguration(f"the launcher is 'kubernetes', but REPRO_KUBERNETES_{name} is not set")
        if not self.mount.is_absolute():
            raise BadConfiguration(f"REPRO_KUBERNETES_MOUNT is {f'{self.mount}'!r}, allowed is an absolute path")

    @staticmethod
    def from_environment() -> "KubernetesSettings":
        """Read REPRO_KUBERNETES_*. Raises BadConfiguration for a missing or malformed value."""

        def read(name: str, default: str = "") -> str:
            return os.environ.get(f"REPRO_KUBERNETES_{name}") or default

        text = read("POD", "{}")
        try:
            pod = json.loads(text)
        except ValueError as error:
            raise BadConfiguration(f"REPRO_KUBERNETES_POD is {text!r}, allowed is JSON: {error}") from None
        if not isinstance(pod, dict):
            raise BadConfiguration(f"REPRO_KUBERNETES_POD is {text!r}, allowed is a JSON object")
        root = os.environ.get("REPRO_ROOT", "")
        default_mount = "" if "://" in root or not root else f"{Path(root).expanduser().absolute()}"
        return KubernetesSettings(
            image=read("IMAGE"),
            claim=read("CLAIM"),
            mount=Path(read("MOUNT", default_mount)),
            namespace=read("NAMESPACE", "default"),
            memory=read("MEMORY"),
            pod=pod,
        )


@dataclass(frozen=True)
class Kubernetes:
    """A cluster as a batch queue, over the Kubernetes API."""

    settings: KubernetesSettings
    batch: Any = field(repr=False)
    """``kubernetes.client.BatchV1Api``"""
    core: Any = field(repr=False)
    """``kubernetes.client.CoreV1Api``"""
    file = "job.manifests.log"

    def description(self, job: JobSpec) -> str:
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests(job, self.settings)}, indent=1)

    def find(self, job: JobSpec) -> str:
        name = job_name(job)
        return "" if self.poll(name).phase == "ended" else name

    def submit(self, job: JobSpec) -> str:
        name = job_name(job)
        self.cancel(name)  # a finished Job is kept for inspection and blocks its name
        deadline = time.monotonic() + DELETE_SECONDS
        while self._request(self.batch.read_namespaced_job, name=name, ignore=404) is not None:
            if time.monotonic() > deadline:
                raise NetworkFault(f"Kubernetes has not deleted the earlier job {name} after {DELETE_SECONDS} s")
            signals.wait(0.5)
        for item in manifests(job, self.settings):
            if item["kind"] == "Service":  # an existing Service of this name is identical
                self._request(self.core.create_namespaced_service, body=item, ignore=409)
            else:
                self._request(self.batch.create_namespaced_job, body=item)
        return name

    def poll(self, name: str) -> QueueStatus:
        job = self._request(self.batch.read_namespaced_job, name=name, ignore=404)
        if job is None:
            return QueueStatus("ended", "gone", Fault(f"Kubernetes job {name} was deleted by another client"))
        conditions = {condition.type for condition in job.status.conditions or () if condition.status == "True"}
        if "Complete" in conditions:
            return QueueStatus("ended", "complete", status=0)
        pods = self._request(self.core.list_namespaced_pod, label_selector=f"{LABEL}={name}").items
        if "Failed" in conditions:
            return _failed(name, pods)
        if job.metadata.deletion_timestamp:
            return QueueStatus("stopping", "being deleted")
        for waiting in _container_states(pods, "waiting"):
            if waiting.reason in FATAL_WAITING_REASONS:
                self.cancel(name)  # otherwise the job would begin, with nobody watching, once an image is there
                fault = BadConfiguration(
                    f"Kubernetes job {name} cannot start: {waiting.reason}: {waiting.message or ''}"
                )
                return QueueStatus("ended", "cannot start", fault)
        phases = sorted({_phase(pod) for pod in pods}) or ["no pod yet"]
        return QueueStatus("running" if job.status.ready else "pending", ", ".join(phases))

    def cancel(self, name: str) -> None:
        # Foreground deletion keeps the Job until its last pod has ended.
        self._request(self.batch.delete_namespaced_job, name=name, propagation_policy="Foreground", ignore=404)

    def clear(self, name: str) -> None:
        self._request(self.core.delete_namespaced_service, name=name, ignore=404)

    def _request(self, method: Callable[..., Any], *, ignore: int = 0, **arguments: Any) -> Any:
        """Call the API and return its result; None for the HTTP status ``ignore``.

        Raises NetworkFault if the cluster is unreachable or overloaded, BadConfiguration if it refuses the request.
        """
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return method(namespace=self.settings.namespace, _request_timeout=REQUEST_SECONDS, **arguments)
        except HTTPError as error:
            raise NetworkFault(f"the Kubernetes API does not answer: {error}") from None
        except ApiException as error:
            status = error.status or 0
            if status == ignore:
                return None
            try:
                said = json.loads(error.body)["message"]
            except (TypeError, ValueError, KeyError):
                said = error.reason
            kind = NetworkFault if status in (0, 408, 429) or status >= 500 else BadConfiguration
            raise kind(f"the Kubernetes API answers {status} to {method.__name__}: {said}") from None


def kubernetes_launcher() -> QueueLauncher:
    """Return a launcher for the cluster of kubeconfig (KUBECONFIG or ``~/.kube/config``) or, in a pod, of the pod.

    Raises BadConfiguration if the package ``kubernetes``, a cluster or a setting is missing.
    """
    settings = KubernetesSettings.from_environment()
    check_installed("kubernetes", "the launcher 'kubernetes'")
    from kubernetes import client, config

    configuration = client.Configuration()
    try:
        # The library reads KUBECONFIG only once, at import.
        config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=configuration)
    except config.ConfigException as missing:
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            raise BadConfiguration(
                f"the launcher is 'kubernetes', but there is no cluster ({missing}); set KUBECONFIG"
            ) from None
    configuration.retries = 1
    api = client.ApiClient(configuration)
    return QueueLauncher(Kubernetes(settings, client.BatchV1Api(api), client.CoreV1Api(api)))


def manifests(job: JobSpec, settings: KubernetesSettings) -> list[dict[str, Any]]:
    """Return the Job and, for several nodes, the Service. Raises BadConfiguration for a folder outside the mount."""
    for what, folder in (("out", job.out), *job.inputs.items()):
        if not folder.absolute().is_relative_to(settings.mount):
            allowed = f"a folder below {settings.mount}, which the pods mount (REPRO_KUBERNETES_MOUNT)"
            raise BadConfiguration(f"{what} is {folder.absolute()}, allowed is {allowed}")
    name = job_name(job)
    labels = {"app.kubernetes.io/name": "repro", LABEL: name}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "clusterIP": "None",
            "selector": {LABEL: name},
            "ports": [{"name": "rendezvous", "port": PORT}],
            # The agents resolve each other's names before their pods are ready.
            "publishNotReadyAddresses": True,
        },
    }
    pod = _pod(job, settings, name)
    # Lists are joined, anything else is replaced.
    added = {key: [*pod.get(key, ()), *each] if isinstance(each, list) else each for key, each in settings.pod.items()}
    batch = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": job.nodes,
            "parallelism": job.nodes,
            "backoffLimit": 0,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
                ]
            },
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod | added},
        },
    }
    return [service, batch] if job.nodes > 1 else [batch]


def _pod(job: JobSpec, settings: KubernetesSettings, name: str) -> dict[str, Any]:
    amounts: dict[str, str] = {"cpu": f"{job.ranks_per_node * job.threads}"}
    limits: dict[str, str] = {}
    if settings.memory:
        amounts["memory"] = limits["memory"] = settings.memory
    if job.site.get("device") == "cuda":
        amounts["nvidia.com/gpu"] = limits["nvidia.com/gpu"] = f"{job.ranks_per_node}"
    return {
        "restartPolicy": "Never",
        "subdomain": name,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        # A rank whose parent is process 1 considers itself orphaned and exits, so torchrun must not be process 1.
        "shareProcessNamespace": True,
        "containers": [
            {
                "name": "job",
                "image": settings.image,
                "command": ["sh", "-c", _script(job, name)],
                "env": [{"name": variable, "value": value} for variable, value in variables(job).items()],
                "resources": {"requests": amounts} | ({"limits": limits} if limits else {}),
                "volumeMounts": [
                    {"name": "store", "mountPath": f"{settings.mount}"},
                    {"name": "memory", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "store", "persistentVolumeClaim": {"claimName": settings.claim}},
            # NCCL's ranks communicate through it; a container's default is 64 MiB.
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }


def _script(job: JobSpec, name: str) -> str:
    """Return the shell script of each pod. The first pod writes its output to the job's log and to its own."""
    endpoint = f"--rdzv-endpoint={name}-0.{name}:{PORT}"
    several = (f"--nnodes={job.nodes}", "--rdzv-backend=c10d", endpoint, f"--rdzv-id={name}")
    start = shlex.join(command(job, "python", several) if job.nodes > 1 else command(job, "python"))
    log, exit_ = (shlex.quote(f"{job.out.absolute() / file}") for file in ("job.log", EXIT))
    # Output goes to the file, and tail shows it. In a pipe, the last output would be lost at the end of the process.
    show = f"touch {log}; tail --pid=$$ -c +$(($(stat -c %s {log}) + 1)) -F {log} &"
    first = f"if [ $JOB_COMPLETION_INDEX = 0 ]; then rm -f {exit_}; {show} exec >> {log} 2>&1; fi"
    return f"{first}\nexec {start}\n"


def _failed(name: str, pods: list[Any]) -> QueueStatus:
    ends = list(_container_states(pods, "terminated"))
    said = f"Kubernetes job {name} used too much memory and was killed: request more with REPRO_KUBERNETES_MEMORY"
    fault = OutOfMemory(said) if any(end.reason == "OOMKilled" for end in ends) else None
    return QueueStatus("ended", "failed", fault, max((end.exit_code for end in ends), default=1))


def _container_states(pods: list[Any], kind: str) -> Iterator[Any]:
    """Yield the containers' states of a kind: ``waiting`` or ``terminated``."""
    for pod in pods:
        for container in pod.status.container_statuses or ():
            if container.state and (state := getattr(container.state, kind)):
                yield state


def _phase(pod: Any) -> str:
    """Return ``Running``, or ``Pending (Unschedulable: 0/3 nodes are available)``."""
    unschedulable = [condition for condition in pod.status.conditions or () if condition.reason == "Unschedulable"]
    why = f" (Unschedulable: {unschedulable[0].message or ''})" if unschedulable else ""
    return f"{pod.status.phase or 'Pending'}{why}"
