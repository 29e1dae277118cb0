"""The training job, from shards to checkpoints: ``python -m model.train job.json``, with or without torchrun.

inputs  shards/ *.arrow, dev/ *.arrow, vocabulary/ tokenizer.json (tokenizer.target.json),
        start/ model.safetensors (optional: the initial weights)
config  {"model": Model, "training": Training}
out     checkpoints/<update>/model.safetensors, model.json (written last), metrics.jsonl, exit.json
"""

from .config import Training, check_whole_updates, from_json
from .config.keying import require
from .experimental import packed_attention
from .experimental.check_attention import compare_with_torch
from .experimental.whole_step import WholeStep
from .job import Facts, Job, StopSignal, run_job
from .network.weights import MODEL_CONFIG
from .training.distributed import Ranks
from .training.metrics import read_facts
from .training.setup import build_trainer
from .training.trainer import Trainer


def work(job: Job) -> Facts:
    """Train to the last update, or until patience or the minutes run out; return the facts of ``Trainer.finish``.

    A job that is restarted with the same folder and number of ranks resumes from the newest undamaged checkpoint, on a
    CPU with weights that are bit-identical to those of an uninterrupted job (``model.training.distributed``).
    """
    stop = StopSignal()
    if (job.out / MODEL_CONFIG).exists():  # the training is complete
        return read_facts(job.out)
    with Ranks.join(job.site.rank_timeout_seconds) as ranks:
        trainer = trainer_for(job, ranks)
        trainer.run(stop)
        return trainer.finish()


def trainer_for(job: Job, ranks: Ranks) -> Trainer:
    """Build the trainer of a job, with the parts of ``model.experimental`` that its site selects.

    Raises ValueError if this device does not support a setting.
    """
    site = job.site
    training = from_json(Training, job.config["training"])
    on_cpu = site.torch_device().type == "cpu"
    most = site.micro_batch_tokens
    check_whole_updates(training, site.compile, on_cpu=on_cpu, ranks=ranks.world_size, micro_batch_tokens=most)
    step_class = WholeStep if site.compile == "update" else None
    attend = packed_attention.attend if site.packed_attention == "own" else None
    require(not (attend and on_cpu), "site.packed_attention (REPRO_PACKED_ATTENTION)", "own", "torch on a CPU")
    trainer = build_trainer(job, ranks, step_class, attend)
    if attend and training.batching == "packed":
        compare_with_torch(trainer, attend)
    return trainer


if __name__ == "__main__":
    run_job(work)
