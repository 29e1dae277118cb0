"""The launcher over ssh with fake programs: command lines, complaints, job.sh; tests/model has a real sshd."""

import json
import subprocess
from pathlib import Path

import pytest
from fake_programs import Programs

from infra.errors import BadConfiguration, Fault, JobFailed, NetworkFault, NoSpace
from infra.launch.far_machine import FarMachine
from infra.launch.job import JobSpec
from infra.launch.ssh import SshQueue, ssh_queue

FULL = 'rsync: [receiver] write failed on "/x/00000.arrow": No space left on device (28)\nrsync error: error in file IO'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(tmp_path / "programs", ("ssh", "rsync"), monkeypatch)


@pytest.fixture
def queue(tmp_path: Path) -> SshQueue:
    return SshQueue(FarMachine("me@box", ("-p", "22 22")), f"{tmp_path}/my far", "/a venv/bin/python")


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    for name in ("an out", "some shards"):
        (tmp_path / name).mkdir()
    (tmp_path / "some shards/manifest.json").write_text("{}")
    inputs = {"shards": tmp_path / "some shards"}
    return JobSpec("model.train", {"say": "it's $HOME"}, inputs, tmp_path / "an out", {}, 2, distributed=True)


def test_the_settings_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadConfiguration, match="REPRO_SSH_HOST is not set"):
        ssh_queue()
    for name, value in (("HOST", "box"), ("FOLDER", "~/jobs"), ("OPTIONS", "-p 2222 -i 'a key'")):
        monkeypatch.setenv(f"REPRO_SSH_{name}", value)
    assert ssh_queue() == SshQueue(FarMachine("box", ("-p", "2222", "-i", "a key")), "jobs", "python3")
    monkeypatch.setenv("REPRO_SSH_PYTHON", "~/venv/bin/python")
    assert ssh_queue().python == "venv/bin/python"
    monkeypatch.setenv("REPRO_SSH_HOST", "-V")
    with pytest.raises(BadConfiguration, match="REPRO_SSH_HOST is '-V'"):
        ssh_queue()
    monkeypatch.setenv("REPRO_SSH_HOST", "box")
    monkeypatch.setenv("REPRO_SSH_OPTIONS", "'a")
    with pytest.raises(BadConfiguration, match="REPRO_SSH_OPTIONS is "):
        ssh_queue()


def test_folder_and_python_are_where_that_machine_says(programs: Programs, queue: SshQueue) -> None:
    programs.answer("ssh", "/home/me/venv/bin/python\n/disk/far\ntorch 2\n")
    assert queue.examine() == "me@box: torch 2"
    assert (queue.python, queue.folder) == ("/home/me/venv/bin/python", "/disk/far")


def test_a_machine_that_greets_is_refused(programs: Programs, queue: SshQueue) -> None:
    programs.answer("ssh", "Welcome!\n/python\n/far\ntorch 2\n")
    with pytest.raises(BadConfiguration, match="`ssh me@box` prints its own text, allowed is none: 'Welcome! "):
        queue.examine()


def test_what_is_sent_and_in_which_order(programs: Programs, queue: SshQueue, job: JobSpec) -> None:
    name = queue.submit(job)
    assert programs.calls()[0][0] == "ssh", "the folder of a failed job is set aside before the inputs are sent"
    targets = [call[-1].removeprefix(f"me@box:{queue.folder}/") for call in programs.calls("rsync")]
    assert [target.partition("/")[0] for target in targets] == ["code", "inputs", "jobs"]
    assert targets[-1].endswith(".new/"), "half a copy is never under the job's name"
    shell = next(call[call.index("-e") + 1] for call in programs.calls("rsync"))
    assert shell.startswith("ssh -p '22 22' -oBatchMode=yes")
    assert all(call[1:3] == ["-p", "22 22"] and call[-2:] == ["me@box", "sh -s"] for call in programs.calls("ssh"))
    queue.fetch(job, 0.0)
    fetched = programs.calls("rsync")[-1]
    assert fetched[-2:] == [f"me@box:{name}/", f"{job.out}/"]
    assert "--delete-after" in fetched


def test_the_script_starts_the_job_on_the_copies(queue: SshQueue, job: JobSpec) -> None:
    """Run by the shell, with a Python that shows what it was given."""
    text = queue._script(job)
    out = Path(queue._name(job))
    out.mkdir(parents=True)
    (out / "exit.json").touch()
    fake = out.parent / "python"
    fake.write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\nexit 7\n')
    fake.chmod(0o755)
    said = subprocess.run(
        ["sh", "-c", text.replace("'/a venv/bin/python'", f"'{fake}'")], capture_output=True, text=True
    )
    assert said.stdout.startswith(f"{queue.folder}/code/")
    assert said.stdout.rstrip().endswith(f"--nproc-per-node=2 --max-restarts=0 -m model.train {out}/job.json")
    given = json.loads((out / "job.json").read_text())
    assert (given["config"], given["out"]) == ({"say": "it's $HOME"}, f"{out}")
    assert given["inputs"]["shards"].startswith(f"{queue.folder}/inputs/")
    assert not (out / "exit.json").exists()
    assert Path(f"{out}.status").read_text() == "7\n"


@pytest.mark.parametrize(
    ("said", "phase", "status", "fault"),
    [
        ("alive\nrunning\n", "running", 1, None),
        ("alive\n", "pending", 1, None),
        ("0\n", "ended", 0, None),
        ("137\n", "ended", -9, None),
        ("127\n", "ended", 127, None),
        ("128\n", "ended", 128, None),
        ("running\n", "ended", 1, JobFailed),
        ("", "ended", 1, JobFailed),
        ("running\nfull\n", "ended", 1, NoSpace),
    ],
)
def test_the_end_of_a_job(
    programs: Programs, queue: SshQueue, said: str, phase: str, status: int, fault: type[Fault] | None
) -> None:
    programs.answer("ssh", said)
    found = queue.poll("/far/jobs/one")
    assert (found.phase, found.status) == (phase, status)
    assert type(found.fault) is (fault or type(None))


@pytest.mark.parametrize(
    ("complaint", "status", "kind", "sentence"),
    [
        ("ssh: connect to host box port 22: No route to host\nrsync error: x", 255, NetworkFault, "No route to host$"),
        ("Connection to box closed by remote host.", 12, NetworkFault, "cannot be reached by ssh"),
        ("me@box: Permission denied (publickey).", 255, BadConfiguration, "says: me@box: Permission denied"),
        ("Host key verification failed.", 255, BadConfiguration, "says: Host key verification failed"),
        (FULL, 11, NoSpace, "no space left on this machine: rsync: .receiver. write failed"),
        ('rsync: [sender] opendir "/x" failed: Permission denied (13)', 23, BadConfiguration, "Permission denied"),
    ],
)
def test_a_failed_copy_is_one_sentence(
    programs: Programs, complaint: str, status: int, kind: type[Fault], sentence: str
) -> None:
    programs.answer("rsync", "", complaint, status)
    with pytest.raises(kind, match=sentence):
        FarMachine("box").fetch("/there/", "/here/")


def test_nothing_is_fetched_where_nothing_is(programs: Programs) -> None:
    programs.answer("rsync", "", 'rsync: [sender] change_dir "/there" failed: No such file or directory (2)', 23)
    FarMachine("box").fetch("/there/", "/here/")
