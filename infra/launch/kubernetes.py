"""Jobs by Kubernetes: an Indexed Job with a pod for each node, and a headless Service by which torchrun's agents meet.

    job.manifests.log   what was applied, as JSON

A pod that is taken away (``DisruptionTarget``) is started again by Kubernetes and goes on from the newest checkpoint;
any other failure ends the Job, and the stage decides by its reason. The store's root is a volume that all pods and this
machine mount at the same path; the image holds this project. Everything is done by ``kubectl`` and its JSON.
"""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration, Fault, NetworkFault, OutOfMemory
from infra.launch.batch_queue import QueueLauncher, QueueStatus, job_name
from infra.launch.command import command, variables
from infra.launch.job import EXIT, JobSpec

APPLIED = "job.manifests.log"
LABEL = "repro/job"
PORT = 29400
ANSWER_SECONDS = 120
GRACE_SECONDS = 90
"""Between SIGTERM and SIGKILL: torchrun gives its ranks 30 s, and kubelet's clock begins before they are asked."""
KEPT_SECONDS = 24 * 3600
"""How long a Job whose launcher is gone may be looked at."""
FATAL_WAITING_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
)
"""What a container waits for that will not come by itself."""
UNREACHABLE_PATTERNS = (
    "unable to connect",
    "connection refused",
    "timed out",
    "timeout",
    "no route",
    "eof",
    "tls handshake",
    "refused",
)
FORBIDDEN = ("forbidden", "unauthorized", "invalid", "not found", "unknown field", "no matches for kind")


@dataclass(frozen=True)
class KubernetesSettings:
    """Where in a cluster."""

    image: str
    """Holds this project and its libraries (REPRO_KUBERNETES_IMAGE)."""
    claim: str
    """The PersistentVolumeClaim with the store (REPRO_KUBERNETES_CLAIM): ReadWriteMany where there are many nodes."""
    mount: Path
    """Where it is mounted, here and in the pods (REPRO_KUBERNETES_MOUNT; else REPRO_ROOT)."""
    namespace: str = "default"
    """REPRO_KUBERNETES_NAMESPACE"""
    memory: str = ""
    """Of each pod (REPRO_KUBERNETES_MEMORY) as in ``64Gi``; empty sets no limit."""
    python: str = "python"
    """The interpreter in the image (REPRO_KUBERNETES_PYTHON)."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """What else the pods' ``spec`` holds (REPRO_KUBERNETES_POD, JSON), as in ``{"nodeSelector": {"gpu": "h100"}}``."""

    def __post_init__(self) -> None:
        for name, value in (("IMAGE", self.image), ("CLAIM", self.claim), ("MOUNT", f"{self.mount}".strip("."))):
            if not value:
                raise BadConfiguration(f"the launcher is 'kubernetes', but REPRO_KUBERNETES_{name} is not set")
        if not self.mount.is_absolute():
            raise BadConfiguration(f"REPRO_KUBERNETES_MOUNT is {f'{self.mount}'!r}, allowed is an absolute path")

    @staticmethod
    def from_environment() -> "KubernetesSettings":
        """What the environment says. Raises BadConfiguration for what is missing or cannot be read."""
        said = {
            name: os.environ.get(f"REPRO_KUBERNETES_{name}", "")
            for name in ("IMAGE", "CLAIM", "MOUNT", "NAMESPACE", "MEMORY", "PYTHON", "POD")
        }
        try:
            pod = json.loads(said["POD"] or "{}")
        except ValueError as error:
            raise BadConfiguration(f"REPRO_KUBERNETES_POD is {said['POD']!r}, allowed is JSON: {error}") from None
        if not isinstance(pod, dict):
            raise BadConfiguration(f"REPRO_KUBERNETES_POD is {said['POD']!r}, allowed is a JSON object")
        root = os.environ.get("REPRO_ROOT", "")
        mount = Path(said["MOUNT"] or ("" if "://" in root else root))
        return KubernetesSettings(
            said["IMAGE"],
            said["CLAIM"],
            mount if said["MOUNT"] or mount == Path() else mount.absolute(),
            said["NAMESPACE"] or "default",
            said["MEMORY"],
            said["PYTHON"] or "python",
            pod,
        )


@dataclass(frozen=True)
class Kubernetes:
    """A cluster as a queue, by kubectl and the context that it is set to."""

    settings: KubernetesSettings

    def is_same_spec(self, job: JobSpec) -> bool:
        try:
            return (job.out / APPLIED).read_text() == _text(manifests(job, self.settings))
        except OSError:
            return False

    def find(self, job: JobSpec) -> str:
        name = job_name(job)
        return "" if self.poll(name).phase == "ended" else name

    def submit(self, job: JobSpec) -> str:
        text = _text(manifests(job, self.settings))
        (job.out / APPLIED).write_text(text)
        try:
            # One that has ended is kept for who wants to look at it, and its name cannot be had twice.
            self._answer("delete", "job", job_name(job), "--cascade=foreground", "--ignore-not-found", "--timeout=60s")
            self._answer("apply", "--filename=-", text=text)
        except NetworkFault:
            raise
        except Fault as fault:
            raise BadConfiguration(f"{fault}") from None
        return job_name(job)

    def poll(self, name: str) -> QueueStatus:
        listed = self._listed(name)
        jobs = [each for each in listed if each["kind"] == "Job"]
        if not jobs:
            return QueueStatus("ended", "gone", Fault(f"Kubernetes job {name} was deleted by somebody"))
        pods = [each for each in listed if each["kind"] == "Pod"]
        status = jobs[0].get("status", {})
        true = {c["type"]: c for c in status.get("conditions", ()) if c.get("status") == "True"}
        if "Complete" in true:
            return QueueStatus("ended", "complete", status=0)
        if "Failed" in true:
            return _failed(name, pods)
        if "deletionTimestamp" in jobs[0]["metadata"]:
            return QueueStatus("ends", "being deleted")
        for pod in pods:
            for waiting in _states(pod, "waiting"):
                if waiting.get("reason") in FATAL_WAITING_REASONS:
                    said = f"{waiting['reason']}: {waiting.get('message', '')}"
                    return QueueStatus(
                        "ended", "hopeless", BadConfiguration(f"Kubernetes job {name} cannot start: {said}")
                    )
        phases = sorted({_phase(pod) for pod in pods}) or ["no pod yet"]
        return QueueStatus("runs" if status.get("ready") else "waits", ", ".join(phases))

    def cancel(self, name: str) -> None:
        # In the foreground: the Job is there until the last of its pods is gone.
        self._answer("delete", "job", name, "--cascade=foreground", "--ignore-not-found", "--wait=false")

    def clear(self, name: str) -> None:
        self._answer("delete", "service", name, "--ignore-not-found", "--wait=false")

    def _listed(self, name: str) -> list[dict[str, Any]]:
        said = self._answer("get", "jobs,pods", f"--selector={LABEL}={name}", "--output=json")
        try:
            found: list[dict[str, Any]] = json.loads(said)["items"]
        except (ValueError, KeyError) as error:
            raise NetworkFault(f"kubectl gave no list: {error}") from None
        return found

    def _answer(self, *words: str, text: str = "") -> str:
        """What kubectl prints. Raises NetworkFault where the cluster is away, else Fault."""
        argv = ["kubectl", f"--namespace={self.settings.namespace}", *words]
        try:
            done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise NetworkFault(f"kubectl did not answer for {ANSWER_SECONDS} s") from None
        except OSError as error:
            raise Fault(f"kubectl cannot be run: {error}") from None
        if done.returncode == 0:
            return done.stdout
        said = " ".join(done.stderr.split()) or f"status {done.returncode}"
        away = any(word in said.lower() for word in UNREACHABLE_PATTERNS) and not any(
            word in said.lower() for word in FORBIDDEN
        )
        raise (NetworkFault if away else Fault)(f"kubectl {words[0]}: {said}")


def kubernetes_launcher() -> QueueLauncher:
    """A launcher as the environment describes it; raises BadConfiguration where kubectl is not installed."""
    if not shutil.which("kubectl"):
        raise BadConfiguration("the launcher is 'kubernetes', but this machine has no program 'kubectl' on its PATH")
    return QueueLauncher(Kubernetes(KubernetesSettings.from_environment()))


def manifests(job: JobSpec, settings: KubernetesSettings) -> list[dict[str, Any]]:
    """The Job, and the Service for its pods to meet where there are several. Raises BadConfiguration for a folder that
    the pods would not see."""
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
            # The agents look for each other before they are ready for anything else.
            "publishNotReadyAddresses": True,
        },
    }
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
            "template": {"metadata": {"labels": labels}, "spec": _merged(_pod(job, settings, name), settings.pod)},
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
        # Ranks end when process 1 has become their parent, which must therefore not be torchrun.
        "shareProcessNamespace": True,
        "containers": [
            {
                "name": "job",
                "image": settings.image,
                "command": ["sh", "-c", _script(job, settings, name)],
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
            # NCCL's ranks speak through it, and a container's own has 64 MiB.
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }


def _script(job: JobSpec, settings: KubernetesSettings, name: str) -> str:
    """What a pod runs. What the first one says is the job's log, and shown as the pod's own too."""
    alone = ("--standalone",)
    meeting = (
        f"--nnodes={job.nodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={name}-0.{name}:{PORT}",
        f"--rdzv-id={name}",
    )
    words = shlex.join(command(job, settings.python, alone if job.nodes == 1 else meeting))
    log, exit_ = (shlex.quote(f"{job.out.absolute() / file}") for file in ("job.log", EXIT))
    # Whatever is in a pipe when a container's program ends is lost: the job's words go to the file, and from there on.
    show = f"touch {log}; tail --pid=$$ -c +$(($(stat -c %s {log}) + 1)) -F {log} &"
    first = f"if [ $JOB_COMPLETION_INDEX = 0 ]; then rm -f {exit_}; {show} exec >> {log} 2>&1; fi"
    return f"{first}\nexec {words}\n"


def _failed(name: str, pods: list[dict[str, Any]]) -> QueueStatus:
    ends = [ended for pod in pods for ended in _states(pod, "terminated")]
    fault = None
    if any(ended.get("reason") == "OOMKilled" for ended in ends):
        more = "ask for more with REPRO_KUBERNETES_MEMORY"
        fault = OutOfMemory(f"Kubernetes job {name} was killed for its memory: {more}")
    return QueueStatus("ended", "failed", fault, max((ended.get("exitCode", 1) for ended in ends), default=1))


def _states(pod: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    found = pod.get("status", {}).get("containerStatuses") or ()
    return [each["state"][kind] for each in found if kind in each.get("state", {})]


def _phase(pod: Mapping[str, Any]) -> str:
    """``Running``, or ``Pending (Unschedulable: 0/3 nodes are available)``."""
    status = pod.get("status", {})
    held = [c for c in status.get("conditions") or () if c.get("reason") == "Unschedulable"]
    why = f" (Unschedulable: {held[0].get('message', '')})" if held else ""
    return f"{status.get('phase', 'Pending')}{why}"


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """``one`` with what ``other`` says: objects are merged, lists are joined, anything else is replaced."""
    found = dict(one)
    for name, value in other.items():
        before = found.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            found[name] = _merged(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            found[name] = [*before, *value]
        else:
            found[name] = value
    return found


def _text(items: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)
