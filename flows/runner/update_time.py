"""Measures the time of a training update on this machine with a few updates of the model (``model.speed``)."""

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from flows.runs import Run
from flows.runs.text_settings import UpdateTime
from infra.launch.job import EXIT
from infra.launch.local import LocalLauncher
from infra.site import Site
from tasks.engine.jobs import job_spec
from tasks.engine.stage import JobRequest


def time_of_update(run: Run, length: int) -> UpdateTime:
    """Measure the time of an update with sentences of ``length`` pieces, in one process. Takes a few seconds.

    Raises BadConfiguration for a model or a training that this machine cannot run.
    """
    config = {
        "model": asdict(run.model),
        "training": asdict(run.training),
        "vocabulary": run.vocabulary.size,
        "length": min(length, run.sharding.max_pieces),
    }
    site = replace(Site.named(), ranks=1, nodes=1, launcher="local")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        request = JobRequest("model.speed", config, {}, out, numerics=run.training.numerics)
        job = replace(job_spec(site, request), gpus=site.gpus[:1])
        LocalLauncher().run(job, lambda: None)
        return UpdateTime(**json.loads((out / EXIT).read_text())["facts"])
