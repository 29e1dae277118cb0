"""Tests of the switch of the experimental attention; ``tests/model/test_gpu.py`` tests its values on a GPU."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_training import TRAINING, write_job

from model.job import Job
from model.train import trainer_for
from model.training.distributed import Ranks


def test_a_training_on_a_cpu_refuses_the_operator(tmp_path: Path) -> None:
    path = write_job(tmp_path, training=replace(TRAINING, batching="packed"), packed_attention="own")
    with pytest.raises(ValueError, match="REPRO_PACKED_ATTENTION"):
        trainer_for(Job.read(path), Ranks())
