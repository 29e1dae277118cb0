"""Strict numerics: one digest on different CPUs and for different numbers of ranks (docs/reproducibility.md)."""

import hashlib
import json
import os
import platform
import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow.parquet as pq
import pytest
import small_training

from infra.launch.local import LocalLauncher
from infra.site import Site
from model.average import average_checkpoints
from model.config import Decoding, Model, Numerics
from model.config.normalise import Normalise
from model.data.batches import Update
from model.network.weights import save_tensors
from model.training import setup
from model.training.distributed import Ranks
from model.training.metrics import LossSums
from model.training.strict import StrictReader, StrictStep
from tasks.engine.jobs import job_spec
from tasks.engine.stage import JobRequest

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="strict numerics is promised for x86 alone")

CPUS = {
    "sse": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "ALL", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
}
"""Settings with which the libraries compute as on other CPUs, unless something overrides them."""
MODEL = Model(layers=2, d_model=128, d_ff=256, heads=4, d_k=32, d_v=32, norm="pre")
"""The demo's model."""
TRAINING = replace(small_training.TRAINING, updates=8, batch_tokens=200, clip_norm=1.0)
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Machine":
    rows = small_training.pairs(10, seed=1)
    small_training.write_shards(tmp_path / "shards", small_training.pairs(40))
    small_training.write_shards(tmp_path / "dev", rows, files=1)
    small_training.write_text(tmp_path / "text", [" ".join(f"p{piece}" for piece in source) for source, _ in rows])
    small_training.write_vocabulary(tmp_path / "vocabulary")
    return Machine(tmp_path, monkeypatch)


class Machine:
    """Runs jobs as a stage does, in an environment that describes another CPU."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.monkeypatch, self.count = root, monkeypatch, 0

    def job(self, config: dict[str, Any], inputs: dict[str, Path], cpu: str, numerics: Numerics, site: Site) -> Path:
        self.count += 1
        out = self.root / f"job-{self.count}"
        out.mkdir()
        for name, value in {**CPUS[cpu], "PYTHONPATH": str(SUPPORT)}.items():
            self.monkeypatch.setenv(name, value)
        distributed = site.ranks > 1
        job = job_spec(site, JobRequest("on_other_cpu", config, inputs, out, distributed, numerics))
        LocalLauncher().run(job, lambda: None)
        return out

    def train(self, cpu: str, numerics: Numerics, site: Site) -> Path:
        """The folder of a training; ``model.safetensors`` in it is the average of its last checkpoints."""
        config = {"model": asdict(MODEL), "training": asdict(replace(TRAINING, numerics=numerics))}
        inputs = {name: self.root / name for name in ("shards", "dev", "vocabulary")}
        out = self.job(config, inputs, cpu, numerics, site)
        checkpoints = sorted(out.glob("checkpoints/*/model.safetensors"))
        assert len(checkpoints) == TRAINING.keep
        save_tensors(out / "model.safetensors", average_checkpoints(checkpoints))
        return out

    def translate(self, weights: Path, cpu: str, numerics: Numerics) -> Path:
        inputs = {"weights": weights, "vocabulary": self.root / "vocabulary"}
        inputs |= {"pairs": self.root / "dev", "text": self.root / "text"}
        config = {"decoding": asdict(Decoding(numerics=numerics)), "normalise": asdict(Normalise())}
        return self.job(config, inputs, cpu, numerics, Site(threads=2))


def digests(training: Path) -> list[str]:
    """Of every checkpoint that stayed, and of their average."""
    found = sorted(training.rglob("model.safetensors"))
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in found]


def dev_perplexity(training: Path) -> float:
    return float(json.loads((training / "exit.json").read_text())["facts"]["dev_perplexity"])


def test_two_cpus_train_the_same_weights(machine: Machine) -> None:
    assert digests(machine.train("avx512", "strict", Site(threads=2))) == digests(
        machine.train("avx2", "strict", Site(threads=1))
    )


@pytest.mark.parametrize("batching", ["buckets", "packed"])
def test_any_number_of_ranks_trains_the_same_weights_also_after_a_kill(
    batching: Literal["buckets", "packed"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernels are this machine's, whatever they are: only the ranks differ.
    monkeypatch.setattr(setup, "configure_numerics", lambda *_: None)
    training = replace(TRAINING, numerics="strict", batching=batching)
    jobs = [
        small_training.write_job(tmp_path, training=training, name=f"ranks-{ranks}", resume_seconds=0.0)
        for ranks in (1, 2, 4)
    ]
    compute = StrictStep.__call__

    def die_at_update_6() -> None:
        def compute_or_die(step: StrictStep, batches: Update, update: int) -> LossSums:
            if update == 6:
                os.kill(os.getpid(), signal.SIGKILL)
            return compute(step, batches, update)

        StrictStep.__call__ = compute_or_die  # type: ignore[method-assign]

    small_training.run_until_killed(jobs[-1], die_at_update_6)
    assert [int(path.name) for path in sorted(jobs[-1].parent.glob("checkpoints/*"))][-1] == 5
    for ranks, job in zip((1, 2, 4), jobs, strict=True):
        small_training.run_ranks(job, ranks)
    assert len({tuple(digests(job.parent)) for job in jobs}) == 1
    assert len({dev_perplexity(job.parent) for job in jobs}) == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"device": "cuda"}, "site.device"),
        ({"compile": "always"}, "site.compile is 'always', allowed is never"),
        ({}, "ATEN_CPU_CAPABILITY is None, allowed is default"),
    ],
)
def test_a_job_that_cannot_compute_strictly_says_so(
    changed: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    training = replace(TRAINING, numerics="strict")
    answer = small_training.run(small_training.write_job(tmp_path, training=training, **changed))
    assert answer["reason"] == "bad_configuration"
    assert message in answer["message"]


def test_ranks_that_change_the_shares_are_refused() -> None:
    unused = cast(Any, None)
    with pytest.raises(ValueError, match=r"site\.ranks"):
        StrictReader(unused, Ranks(0, 3), unused, 0)


@pytest.mark.slow
def test_weights_and_translations_have_one_digest_on_three_cpus(machine: Machine) -> None:
    trained = [machine.train(cpu, "strict", Site(ranks=ranks)) for cpu, ranks in zip(CPUS, (4, 1, 2), strict=True)]
    assert len({tuple(digests(each)) for each in trained}) == 1
    translated = [machine.translate(trained[0], cpu, "strict") / "hypotheses.parquet" for cpu in CPUS]
    assert len({path.read_bytes() for path in translated}) == 1
    # Without strict numerics the same settings decide the bits, so the comparison above is one of different kernels.
    # Where the machine lacks AVX-512, its kernels end the process.
    cpus = [cpu for cpu in CPUS if cpu != "avx512" or " avx512f " in Path("/proc/cpuinfo").read_text()]
    fast = [machine.train(cpu, "fast", Site(threads=1)) for cpu in cpus]
    assert len({tuple(digests(each)) for each in fast}) == len(cpus)
    log_p = [pq.read_table(machine.translate(trained[0], cpu, "fast") / "hypotheses.parquet") for cpu in cpus]
    assert len({tuple(table["log_probability"].to_pylist()) for table in log_p}) == len(cpus)
