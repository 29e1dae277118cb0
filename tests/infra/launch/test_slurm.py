"""SLURM's command lines and output, with fake programs; tests/model has a real cluster."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from fake_programs import Programs

from infra.errors import BadConfiguration, Fault, JobFailed, NetworkFault, OutOfMemory, Preempted
from infra.launch.batch_queue import job_name
from infra.launch.job import JobSpec
from infra.launch.slurm import PROGRAMS, Slurm, SlurmSettings, script, slurm_launcher

SETTINGS = SlurmSettings("gpu-long", "lab 7", "12:00:00", ("--mem=64G", "--comment=two words"))


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(tmp_path / "programs", PROGRAMS, monkeypatch)


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    out = tmp_path / "an out's folder, 5%"
    out.mkdir()
    return JobSpec("model.train", {}, {}, out, {"device": "cuda"}, 8, distributed=True, nodes=2, threads=3)


def options(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ").strip("'") for line in text.splitlines() if line.startswith("#SBATCH")]


def test_the_script_asks_for_what_the_job_needs(job: JobSpec) -> None:
    lines = options(script(job, SETTINGS))
    assert {"--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=12", "--gres=gpu:4", "--requeue"} <= set(lines)
    assert {"--signal=TERM@120", "--partition=gpu-long", "--account=lab 7", "--time=12:00:00"} <= set(lines)
    assert lines[-2:] == ["--mem=64G", "--comment=two words"], "the user's options come last and take precedence"
    assert "%%/job.log" in next(line for line in script(job, SETTINGS).splitlines() if "--output" in line)
    bare = options(script(replace(job, site={"device": "cpu"}), SlurmSettings()))
    assert not [word for word in bare if word.startswith(("--gres", "--partition", "--account", "--time"))]


def test_the_script_starts_one_torchrun_on_each_node(job: JobSpec, slurm: Programs) -> None:
    """Run by the shell, with a fake srun that records its command line."""
    job.write()
    (job.out / "exit.json").write_text("of an earlier start")
    slurm.answer("scontrol show hostnames node[3-4]", "node3\nnode4\n")
    slurm.answer("srun", status=7)
    text = script(job, SETTINGS)
    environment = {"PATH": f"{slurm.folder}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "node[3-4]", "SLURM_JOB_ID": "40123"}
    assert subprocess.run(["bash", "-c", text], env=environment, check=False).returncode == 7, "srun's status is lost"
    words = slurm.calls("srun")[0]
    assert words[words.index("-m") :] == [
        *("-m", "torch.distributed.run", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node3:20123"),
        *("--rdzv-id=40123.0", "--nproc-per-node=4", "--max-restarts=0", "-m", "model.train", str(job.path)),
    ]
    assert {"--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=12"} <= set(words)
    assert not (job.out / "exit.json").exists()


def test_a_submitted_job_is_found_and_cancelled(job: JobSpec, slurm: Programs) -> None:
    slurm.answer("sbatch", "4711;cluster\n")
    slurm.answer("squeue --me", "4711\n")
    queue = Slurm(SETTINGS)
    name = queue.submit(job)
    assert name == "SLURM job 4711"
    assert queue.description(job) != Slurm(SlurmSettings()).description(job)
    assert queue.find(job) == name
    queue.cancel(name)
    assert slurm.calls() == [
        ["sbatch", "--parsable", f"--job-name={job_name(job)}", f"{job.out}/job.sh"],
        ["squeue", "--me", "--noheader", "--format=%i", f"--name={job_name(job)}"],
        ["scancel", "4711"],
    ]


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("TIMEOUT", Preempted),
        ("PREEMPTED", Preempted),
        ("NODE_FAIL", JobFailed),
        ("BOOT_FAIL", JobFailed),
        ("OUT_OF_MEMORY", OutOfMemory),
        ("CANCELLED", Fault),
        ("FAILED", type(None)),
        ("COMPLETED", type(None)),
    ],
)
def test_states_become_faults(slurm: Programs, state: str, kind: type) -> None:
    slurm.answer("squeue", f"{state}|None\n")
    status = Slurm(SETTINGS).poll("SLURM job 9")
    assert (status.phase, type(status.fault)) == ("ended", kind)


def test_of_a_job_that_the_controller_forgot_its_own_file_tells(slurm: Programs) -> None:
    slurm.answer("squeue", complaint="slurm_load_jobs error: Invalid job id specified", status=1)
    forgotten = Slurm(SETTINGS).poll("SLURM job 9")
    assert (forgotten.phase, forgotten.fault) == ("ended", None)


def test_an_error_of_squeue_says_nothing_of_the_job(slurm: Programs) -> None:
    slurm.answer("squeue", complaint="slurm_load_jobs error: Protocol authentication error", status=1)
    with pytest.raises(NetworkFault, match="Protocol authentication error"):
        Slurm(SETTINGS).poll("SLURM job 9")


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("PENDING|Resources", "pending"),
        ("RUNNING|None", "running"),
        ("COMPLETING|None", "stopping"),
        ("SUSPENDED|None", "running"),
    ],
)
def test_a_job_that_has_not_ended_costs_one_command(slurm: Programs, line: str, phase: str) -> None:
    slurm.answer("squeue", f"{line}\n")
    assert Slurm(SETTINGS).poll("SLURM job 9").phase == phase
    assert len(slurm.calls()) == 1


def test_the_environment_describes_the_cluster(slurm: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PARTITION", "gpu-long"), ("ACCOUNT", "lab 7"), ("TIME", "12:00:00")):
        monkeypatch.setenv(f"REPRO_SLURM_{name}", value)
    monkeypatch.setenv("REPRO_SLURM_OPTIONS", "--mem=64G --comment='two words'")
    queue = slurm_launcher().queue
    assert isinstance(queue, Slurm)
    assert queue.settings == SETTINGS
    monkeypatch.setenv("REPRO_SLURM_OPTIONS", "--comment='two")
    with pytest.raises(BadConfiguration, match='REPRO_SLURM_OPTIONS is "--comment=\'two"'):
        slurm_launcher()


def test_the_script_holds_no_secret_of_the_environment(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "planted-secret")
    assert "planted-secret" not in script(job, SETTINGS) + json.dumps(job.text())


@pytest.mark.parametrize("name", ["PARTITION", "ACCOUNT", "TIME", "OPTIONS"])
def test_a_newline_never_becomes_a_line_of_the_script(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"REPRO_SLURM_{name}", "gpu\nrm -rf /")
    with pytest.raises(BadConfiguration, match=rf"REPRO_SLURM_{name} is .* allowed is one line"):
        SlurmSettings.from_environment()
