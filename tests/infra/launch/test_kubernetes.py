"""What Kubernetes is given, held to its published schemas, and what its answers come to; kubectl is a stand-in."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from fake_programs import Programs
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.errors import BadConfiguration, Fault, NetworkFault, OutOfMemory
from infra.launch.batch_queue import job_name
from infra.launch.job import JobSpec
from infra.launch.kubernetes import Kubernetes, KubernetesSettings, kubernetes_launcher, manifests

SCHEMAS = ("1.31", "1.37")
"""The first whose Jobs have a stable podFailurePolicy, and the newest published here."""
ROOT = Path("/shared/repro")
SETTINGS = KubernetesSettings("registry.example/repro:gpu", "store", ROOT, "lab", "64Gi", "python3")
JOB = JobSpec("model.train", {}, {"shards": ROOT / "shard/a"}, ROOT / "train/b", {"device": "cuda"}, 8, True, 2, 3)


def of_kind(kind: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return next(item for item in items if item["kind"] == kind)


def pod_of(job: JobSpec, settings_: KubernetesSettings = SETTINGS) -> dict[str, Any]:
    pod: dict[str, Any] = of_kind("Job", manifests(job, settings_))["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("version", SCHEMAS)
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_manifests_keep_to_the_published_schemas(version: str, nodes: int, device: str) -> None:
    for memory in ("", "64Gi"):
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


def test_only_a_pod_that_was_taken_away_is_started_again() -> None:
    spec = of_kind("Job", manifests(JOB, SETTINGS))["spec"]
    taken, failed = spec["podFailurePolicy"]["rules"]
    assert (taken["action"], taken["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert (failed["action"], failed["onExitCodes"]) == ("FailJob", {"operator": "NotIn", "values": [0]})
    assert (spec["backoffLimit"], pod_of(JOB)["restartPolicy"]) == (0, "Never")
    assert pod_of(JOB)["terminationGracePeriodSeconds"] > 30, "torchrun gives its ranks 30 s for the checkpoint"
    assert spec["ttlSecondsAfterFinished"] > 0


def test_pods_meet_at_the_first_by_the_service() -> None:
    items = manifests(JOB, SETTINGS)
    service, job, pod = of_kind("Service", items), of_kind("Job", items), pod_of(JOB)
    name = job_name(JOB)
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert pod["subdomain"] == service["metadata"]["name"] == name
    words = pod["containers"][0]["command"][2].splitlines()[-1].split()
    assert words == [
        *("exec", "python3", "-m", "torch.distributed.run", "--nnodes=2", "--rdzv-backend=c10d"),
        *(f"--rdzv-endpoint={name}-0.{name}:{service['spec']['ports'][0]['port']}", f"--rdzv-id={name}"),
        *("--nproc-per-node=4", "--max-restarts=0", "-m", "model.train", str(JOB.path)),
    ]


def test_one_node_needs_no_service_and_one_process_no_torchrun() -> None:
    alone = manifests(replace(JOB, nodes=1), SETTINGS)
    assert [item["kind"] for item in alone] == ["Job"]
    assert "--standalone" in pod_of(replace(JOB, nodes=1))["containers"][0]["command"][2]
    average = replace(JOB, module="model.average", nodes=1, ranks=1, distributed=False)
    assert "torch.distributed" not in pod_of(average)["containers"][0]["command"][2]


def test_torchrun_is_not_process_1_of_its_pod() -> None:
    """A rank whose parent is process 1 takes itself for an orphan and ends (model.job)."""
    assert pod_of(JOB)["shareProcessNamespace"]


@pytest.mark.parametrize(("index", "leads"), [("0", True), ("1", False)])
def test_the_first_pod_writes_the_jobs_log_and_forgets_the_end_before(tmp_path: Path, index: str, leads: bool) -> None:
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
    end = time.monotonic() + 60
    while shown.read_text() != "a word\n":  # kubectl logs shows it too
        assert time.monotonic() < end
        time.sleep(0.05)
    assert (out / "job.log").exists() == leads
    assert (out / "exit.json").exists() != leads


@given(st.dictionaries(st.sampled_from(["nodeSelector", "priorityClassName", "tolerations"]), st.just({})))
@settings(max_examples=10)
def test_what_the_user_adds_leaves_the_rest(more: Mapping[str, Any]) -> None:
    plain, added = pod_of(JOB), pod_of(JOB, replace(SETTINGS, pod=more))
    assert {name: added[name] for name in plain} == plain
    assert added.keys() == plain.keys() | more.keys()


def test_lists_of_the_user_are_added() -> None:
    more = {"volumes": [{"name": "scratch", "emptyDir": {}}], "securityContext": {"runAsUser": 1000}}
    pod = pod_of(JOB, replace(SETTINGS, pod=more))
    assert [volume["name"] for volume in pod["volumes"]] == ["store", "memory", "scratch"]
    assert pod["securityContext"] == {"runAsUser": 1000}


@pytest.mark.parametrize("what", ["out", "shards"])
def test_a_folder_that_pods_do_not_see_is_refused(what: str) -> None:
    elsewhere = Path("/elsewhere")
    job = replace(JOB, out=elsewhere) if what == "out" else replace(JOB, inputs={"shards": elsewhere})
    with pytest.raises(BadConfiguration, match=rf"{what} is /elsewhere, allowed is a folder below /shared/repro"):
        manifests(job, SETTINGS)


# What kubectl is asked, and what its answers come to.


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(tmp_path / "programs", ("kubectl",), monkeypatch)


def listed(*items: Mapping[str, Any]) -> str:
    return json.dumps({"kind": "List", "items": items})


def job_item(*conditions: str, **status: Any) -> dict[str, Any]:
    told = [{"type": condition, "status": "True"} for condition in conditions]
    return {"kind": "Job", "metadata": {}, "status": {"conditions": told, **status}}


def pod_item(state: Mapping[str, Any], phase: str = "Pending", **status: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {},
        "status": {"phase": phase, "containerStatuses": [{"state": state}], **status},
    }


def test_what_is_applied_is_asked_after_and_deleted(kubectl: Programs, tmp_path: Path) -> None:
    job = replace(JOB, out=tmp_path / "out", inputs={})
    job.out.mkdir()
    queue = Kubernetes(replace(SETTINGS, mount=tmp_path))
    kubectl.answer("get jobs,pods", listed(job_item(ready=2), pod_item({"running": {}}, "Running")))
    assert not queue.is_same_spec(job)
    name = queue.submit(job)
    assert queue.is_same_spec(job)
    assert kubectl.text() == {"apiVersion": "v1", "kind": "List", "items": manifests(job, queue.settings)}
    assert queue.find(job) == name
    queue.cancel(name)
    queue.clear(name)
    asked = [" ".join(call) for call in kubectl.calls()]
    assert asked == [
        f"kubectl --namespace=lab delete job {name} --cascade=foreground --ignore-not-found --timeout=60s",
        "kubectl --namespace=lab apply --filename=-",
        f"kubectl --namespace=lab get jobs,pods --selector=repro/job={name} --output=json",
        f"kubectl --namespace=lab delete job {name} --cascade=foreground --ignore-not-found --wait=false",
        f"kubectl --namespace=lab delete service {name} --ignore-not-found --wait=false",
    ]


NODES_FULL = {"conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/3 nodes are available"}]}


@pytest.mark.parametrize(
    ("items", "phase", "fault", "said"),
    [
        ([job_item()], "waits", type(None), "no pod yet"),
        ([job_item(), pod_item({}, **NODES_FULL)], "waits", type(None), "0/3 nodes are available"),
        ([job_item(ready=1), pod_item({"running": {}}, "Running")], "runs", type(None), "Running"),
        ([job_item("Complete")], "ended", type(None), "complete"),
        ([job_item("Failed"), pod_item({"terminated": {"exitCode": 1}})], "ended", type(None), "failed"),
        ([job_item("Failed"), pod_item({"terminated": {"reason": "OOMKilled"}})], "ended", OutOfMemory, "failed"),
        ([job_item(), pod_item({"waiting": {"reason": "ImagePullBackOff"}})], "ended", BadConfiguration, "hopeless"),
        ([job_item(), pod_item({"waiting": {"reason": "ContainerCreating"}})], "waits", type(None), "Pending"),
        ([{**job_item(), "metadata": {"deletionTimestamp": "now"}}], "ends", type(None), "being deleted"),
        ([], "ended", Fault, "gone"),
    ],
)
def test_answers_become_looks(
    kubectl: Programs, items: list[dict[str, Any]], phase: str, fault: type, said: str
) -> None:
    kubectl.answer("get jobs,pods", listed(*items))
    look = Kubernetes(SETTINGS).poll("repro-train-1")
    assert (look.phase, type(look.fault)) == (phase, fault)
    assert said in look.words
    assert not (look.fault and look.fault.retry)


@pytest.mark.parametrize(
    ("complaint", "kind"),
    [
        ("Unable to connect to the server: dial tcp: i/o timeout", NetworkFault),
        (
            "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?",
            NetworkFault,
        ),
        ('error validating data: unknown field "spec.x"', BadConfiguration),
        ('jobs.batch is forbidden: User "x" cannot create resource', BadConfiguration),
        ('namespaces "lab" not found', BadConfiguration),
    ],
)
def test_a_cluster_that_is_away_is_told_from_one_that_refuses(
    kubectl: Programs, tmp_path: Path, complaint: str, kind: type[Fault]
) -> None:
    kubectl.answer("apply", complaint=complaint, status=1)
    job = replace(JOB, out=tmp_path, inputs={})
    with pytest.raises(kind):
        Kubernetes(replace(SETTINGS, mount=tmp_path)).submit(job)


def test_a_job_runs_to_its_end(kubectl: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    monkeypatch.setenv("REPRO_KUBERNETES_IMAGE", "repro")
    monkeypatch.setenv("REPRO_KUBERNETES_CLAIM", "store")
    launcher = kubernetes_launcher()
    launcher.poll_seconds = 0.05
    job = replace(JOB, out=tmp_path / "out", inputs={})
    job.out.mkdir()
    for items in ([], [job_item()], [job_item(ready=2)], [job_item("Complete")]):
        kubectl.answer("get jobs,pods", listed(*items))
    done = json.dumps({"reason": "done", "message": ""})
    said: list[str] = []
    launcher.say = said.append
    launcher.run(
        job, lambda: None if (job.out / "exit.json").exists() else (job.out / "exit.json").write_text(done) and None
    )
    assert said[0] == f"model.train was submitted as {job_name(job)}"
    assert kubectl.calls()[-1][2:4] == ["delete", "service"]


def test_the_environment_describes_the_cluster(kubectl: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", "s3://bucket/repro")
    with pytest.raises(BadConfiguration, match="REPRO_KUBERNETES_IMAGE is not set"):
        kubernetes_launcher()
    monkeypatch.setenv("REPRO_KUBERNETES_IMAGE", "registry.example/repro:gpu")
    monkeypatch.setenv("REPRO_KUBERNETES_CLAIM", "store")
    with pytest.raises(BadConfiguration, match="REPRO_KUBERNETES_MOUNT is not set"):
        kubernetes_launcher()
    monkeypatch.setenv("REPRO_KUBERNETES_MOUNT", "relative")
    with pytest.raises(BadConfiguration, match="REPRO_KUBERNETES_MOUNT is 'relative'"):
        kubernetes_launcher()
    for name, value in (("MOUNT", f"{ROOT}"), ("NAMESPACE", "lab"), ("MEMORY", "64Gi"), ("PYTHON", "python3")):
        monkeypatch.setenv(f"REPRO_KUBERNETES_{name}", value)
    queue = kubernetes_launcher().queue
    assert isinstance(queue, Kubernetes)
    assert queue.settings == SETTINGS
    for wrong in ("{", "[]"):
        monkeypatch.setenv("REPRO_KUBERNETES_POD", wrong)
        with pytest.raises(BadConfiguration, match="REPRO_KUBERNETES_POD is"):
            kubernetes_launcher()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BadConfiguration, match="no program 'kubectl'"):
        kubernetes_launcher()
