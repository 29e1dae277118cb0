"""Manifests are checked against the published schemas; requests and answers, against a small fake API server."""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import kubernetes_validate
import pytest
from patience import wait_for

from infra.errors import BadConfiguration, Fault, NetworkFault, OutOfMemory
from infra.launch.batch_queue import job_name
from infra.launch.job import JobSpec
from infra.launch.kubernetes import Kubernetes, KubernetesSettings, kubernetes_launcher, manifests

SCHEMAS = ("1.31", "1.37")
"""The first whose Jobs have a stable podFailurePolicy, and the newest published here."""
ROOT = Path("/shared/repro")
SETTINGS = KubernetesSettings("registry.example/repro:gpu", "store", ROOT, "lab", "64Gi")
JOB = JobSpec("model.train", {}, {"shards": ROOT / "shard/a"}, ROOT / "train/b", {"device": "cuda"}, 8, True, 2, 3)


def of_kind(kind: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return next(item for item in items if item["kind"] == kind)


def pod_of(job: JobSpec, settings_: KubernetesSettings = SETTINGS) -> dict[str, Any]:
    pod: dict[str, Any] = of_kind("Job", manifests(job, settings_))["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("version", SCHEMAS)
def test_manifests_match_the_published_schemas(version: str) -> None:
    for nodes, device, memory in itertools.product((1, 2), ("auto", "cuda"), ("", "64Gi")):
        items = manifests(replace(JOB, nodes=nodes, site={"device": device}), replace(SETTINGS, memory=memory))
        for item in items:
            kubernetes_validate.validate(item, version, strict=True)
    wrong = manifests(JOB, replace(SETTINGS, pod={"nodeSelektor": {}}))
    with pytest.raises(kubernetes_validate.ValidationError):
        for item in wrong:
            kubernetes_validate.validate(item, version, strict=True)


def test_a_pod_for_each_node_and_a_gpu_for_each_rank() -> None:
    spec = of_kind("Job", manifests(JOB, SETTINGS))["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    resources = pod_of(JOB)["containers"][0]["resources"]
    assert resources["limits"] == {"nvidia.com/gpu": "4", "memory": "64Gi"}
    assert resources["requests"] == {"cpu": "12", "nvidia.com/gpu": "4", "memory": "64Gi"}
    on_cpu = pod_of(replace(JOB, site={"device": "cpu"}), replace(SETTINGS, memory=""))["containers"][0]["resources"]
    assert on_cpu == {"requests": {"cpu": "12"}}


def test_pods_find_the_first_one_through_the_service() -> None:
    items = manifests(JOB, SETTINGS)
    service, job, pod = of_kind("Service", items), of_kind("Job", items), pod_of(JOB)
    name = job_name(JOB)
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert pod["subdomain"] == service["metadata"]["name"] == name
    words = pod["containers"][0]["command"][2].splitlines()[-1].split()
    assert words == [
        *("exec", "python", "-m", "torch.distributed.run", "--nnodes=2", "--rdzv-backend=c10d"),
        *(f"--rdzv-endpoint={name}-0.{name}:{service['spec']['ports'][0]['port']}", f"--rdzv-id={name}"),
        *("--nproc-per-node=4", "--max-restarts=0", "-m", "model.train", str(JOB.path)),
    ]


@pytest.mark.parametrize(("index", "leads"), [("0", True), ("1", False)])
def test_the_first_pod_writes_the_log_and_removes_an_earlier_exit_file(tmp_path: Path, index: str, leads: bool) -> None:
    (tmp_path / "some_job.py").write_text("import sys\nprint('a word')\nsys.exit(7)\n")
    out = tmp_path / "it's out"
    out.mkdir()
    (out / "exit.json").write_text("{}")
    job = JobSpec("some_job", {}, {}, out, {})
    words = pod_of(job, replace(SETTINGS, mount=tmp_path))["containers"][0]["command"]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "JOB_COMPLETION_INDEX": index,
        "PYTHONPATH": f"{tmp_path}",
    }
    shown = tmp_path / "shown"
    with shown.open("wb") as pod_log:
        assert subprocess.run(words, env=environment, stdout=pod_log, check=False).returncode == 7
    wait_for(lambda: shown.read_text() == "a word\n")  # kubectl logs shows it too
    assert (out / "job.log").exists() == leads
    assert (out / "exit.json").exists() != leads


def test_lists_in_the_pod_setting_are_joined() -> None:
    more = {"volumes": [{"name": "scratch", "emptyDir": {}}], "securityContext": {"runAsUser": 1000}}
    pod = pod_of(JOB, replace(SETTINGS, pod=more))
    assert [volume["name"] for volume in pod["volumes"]] == ["store", "memory", "scratch"]
    assert pod["securityContext"] == {"runAsUser": 1000}
    assert pod.keys() == pod_of(JOB).keys() | {"securityContext"}


@pytest.mark.parametrize("what", ["out", "shards"])
def test_a_folder_outside_the_mount_is_refused(what: str) -> None:
    elsewhere = Path("/elsewhere")
    job = replace(JOB, out=elsewhere) if what == "out" else replace(JOB, inputs={"shards": elsewhere})
    with pytest.raises(BadConfiguration, match=rf"{what} is /elsewhere, allowed is a folder below /shared/repro"):
        manifests(job, SETTINGS)


# Requests to the API server and its answers.


class ApiServer(ThreadingHTTPServer):
    """Stores objects by their paths and notes requests; ``pods`` and ``status`` are what the test sets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ApiHandler)
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.pods: list[dict[str, Any]] = []
        self.refusal: tuple[int, str] | None = None

    def set_job(self, *conditions: str, metadata: Mapping[str, Any] | None = None, **status: Any) -> None:
        found = [{"type": condition, "status": "True"} for condition in conditions]
        job = {"metadata": metadata or {}, "status": {"conditions": found, **status}}
        self.objects[f"{JOBS}/{job_name(JOB)}"] = job


class ApiHandler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.reply({"items": self.server.pods} if path == PODS else self.server.objects.get(path))

    def do_POST(self) -> None:
        form = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = f"{self.path}/{form['metadata']['name']}"
        if path in self.server.objects:
            self.reply({"message": "already exists"}, 409)
        else:
            self.server.objects[path] = {"status": {}, **form}
            self.reply(form, 201)

    def do_DELETE(self) -> None:
        self.reply(self.server.objects.pop(self.path.partition("?")[0], None))

    def reply(self, form: Mapping[str, Any] | None, status: int = 200) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        if self.server.refusal:
            status, message = self.server.refusal
            form = {"message": message}
        elif form is None:
            status, form = 404, {"message": "not found"}
        text = json.dumps(form).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", f"{len(text)}")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: Any) -> None: ...


JOBS, PODS = "/apis/batch/v1/namespaces/lab/jobs", "/api/v1/namespaces/lab/pods"
SERVICES = "/api/v1/namespaces/lab/services"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """An API server that kubeconfig and the REPRO_KUBERNETES_* variables name."""
    server = ApiServer()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    cluster = {"name": "fake", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "fake", "context": {"cluster": "fake", "user": "fake"}}
    kubeconfig = {"clusters": [cluster], "contexts": [context], "users": [{"name": "fake", "user": {}}]}
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig | {"current-context": "fake"}))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'kubeconfig'}")
    for name, value in (("IMAGE", SETTINGS.image), ("CLAIM", "store"), ("MOUNT", f"{ROOT}"), ("NAMESPACE", "lab")):
        monkeypatch.setenv(f"REPRO_KUBERNETES_{name}", value)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def cluster_queue() -> Kubernetes:
    queue = kubernetes_launcher().queue
    assert isinstance(queue, Kubernetes)
    return queue


def pod_item(state: Mapping[str, Any], phase: str = "Pending", **status: Any) -> dict[str, Any]:
    container = {"name": "job", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    return {"metadata": {}, "status": {"phase": phase, "containerStatuses": [container], **status}}


def test_a_job_is_submitted_found_and_deleted(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_KUBERNETES_MOUNT", f"{tmp_path}")
    job, queue = replace(JOB, out=tmp_path / "out", inputs={}), cluster_queue()
    job.out.mkdir()
    assert queue.find(job) == ""
    api.requests.clear()
    for _ in range(2):  # a finished job of the same name, and its service, are no obstacle
        name = queue.submit(job)
    assert name == job_name(job)
    service, batch = manifests(job, queue.settings)
    assert api.objects == {f"{SERVICES}/{name}": service | {"status": {}}, f"{JOBS}/{name}": batch | {"status": {}}}
    assert queue.find(job) == name
    assert kubernetes_launcher().end(name, job), "as `repro stop` ends it"
    assert not api.objects
    queue.cancel(name)
    queue.clear(name)
    assert api.requests[0] == f"DELETE {JOBS}/{name}?propagationPolicy=Foreground"


NODES_FULL = {
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    ]
}
KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


@pytest.mark.parametrize(
    ("job", "pods", "phase", "fault", "description"),
    [
        ({}, [], "pending", type(None), "no pod yet"),
        ({}, [pod_item({}, **NODES_FULL)], "pending", type(None), "0/3 nodes are available"),
        ({"ready": 1}, [pod_item({"running": {}}, "Running")], "running", type(None), "Running"),
        ({"condition": "Complete"}, [], "ended", type(None), "complete"),
        ({"condition": "Failed"}, [pod_item({"terminated": {"exitCode": 1}})], "ended", type(None), "failed"),
        ({"condition": "Failed"}, [pod_item(KILLED)], "ended", OutOfMemory, "failed"),
        ({}, [pod_item({"waiting": {"reason": "ImagePullBackOff"}})], "ended", BadConfiguration, "cannot start"),
        ({}, [pod_item({"waiting": {"reason": "ContainerCreating"}})], "pending", type(None), "Pending"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, [], "stopping", type(None), "being deleted"),
        (None, [], "ended", Fault, "gone"),
    ],
)
def test_poll_reads_the_job_and_its_pods(
    api: ApiServer, job: dict[str, Any] | None, pods: list[dict[str, Any]], phase: str, fault: type, description: str
) -> None:
    api.pods = pods
    if job is not None:
        api.set_job(*filter(None, [job.pop("condition", "")]), **job)
    found = cluster_queue().poll(job_name(JOB))
    assert (found.phase, type(found.fault)) == (phase, fault)
    assert description in found.description
    is_left = f"{JOBS}/{job_name(JOB)}" in api.objects
    assert is_left == (description not in ("cannot start", "gone")), "it would begin once its image is there"
    assert not (found.fault and found.fault.retry)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, BadConfiguration), (403, BadConfiguration), (404, BadConfiguration), (422, BadConfiguration)]
    + [(status, NetworkFault) for status in (429, 500, 503)],
)
def test_the_status_tells_a_refusal_from_an_outage(
    api: ApiServer, tmp_path: Path, status: int, kind: type[Fault], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRO_KUBERNETES_MOUNT", f"{tmp_path}")
    api.refusal = (status, "the sentence of the server")
    with pytest.raises(kind, match=f"{status}.*the sentence of the server"):
        cluster_queue().submit(replace(JOB, out=tmp_path, inputs={}))


def test_the_environment_describes_the_cluster(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IMAGE", "CLAIM", "MOUNT"):
        monkeypatch.delenv(f"REPRO_KUBERNETES_{name}")
    monkeypatch.setenv("REPRO_ROOT", "s3://bucket/repro")
    for name, value in (("IMAGE", SETTINGS.image), ("CLAIM", "store"), ("MOUNT", "relative")):
        with pytest.raises(BadConfiguration, match=f"REPRO_KUBERNETES_{name}"):
            kubernetes_launcher()
        monkeypatch.setenv(f"REPRO_KUBERNETES_{name}", value)
    with pytest.raises(BadConfiguration, match="REPRO_KUBERNETES_MOUNT is 'relative'"):
        kubernetes_launcher()
    for name, value in (("MOUNT", f"{ROOT}"), ("MEMORY", "64Gi")):
        monkeypatch.setenv(f"REPRO_KUBERNETES_{name}", value)
    assert cluster_queue().settings == SETTINGS
    for wrong in ("{", "[]"):
        monkeypatch.setenv("REPRO_KUBERNETES_POD", wrong)
        with pytest.raises(BadConfiguration, match="REPRO_KUBERNETES_POD"):
            kubernetes_launcher()
    monkeypatch.delenv("REPRO_KUBERNETES_POD")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}")
    with pytest.raises(BadConfiguration, match="KUBECONFIG"):
        kubernetes_launcher()
