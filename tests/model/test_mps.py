"""Apple's GPU as a device: what is refused, and where. No test here has one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import TRAINING, run, write_job

from model.job import JobSettings
from model.numerics import check_mps


def test_without_the_device_a_job_ends_with_one_sentence(tmp_path: Path) -> None:
    answer = run(write_job(tmp_path, device="mps"))
    assert answer["reason"] == "bad_configuration"
    sentence = "site.device (REPRO_DEVICE) is 'mps', allowed is cpu or cuda: this torch has no MPS device"
    assert answer["message"] == sentence


def test_a_search_stays_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    site = JobSettings(device="mps")
    assert (site.torch_device().type, site.search_device().type) == ("mps", "cpu")


@pytest.mark.parametrize(
    ("training", "site", "ranks", "field"),
    [
        ({"precision": "bf16"}, {}, 1, "training.precision is 'bf16', allowed is fp32"),
        ({"dev_bleu": 100}, {}, 1, "training.dev_bleu"),
        ({}, {"compile": "always"}, 1, "REPRO_COMPILE"),
        ({}, {"packed_attention": "own"}, 1, "REPRO_PACKED_ATTENTION"),
        ({}, {}, 2, "REPRO_RANKS"),
    ],
)
def test_what_it_is_not_written_for_is_refused_by_its_name(
    training: dict[str, Any], site: dict[str, Any], ranks: int, field: str
) -> None:
    check_mps(TRAINING, JobSettings(device="mps"), 1)
    with pytest.raises(ValueError, match=field):
        check_mps(replace(TRAINING, **training), JobSettings(device="mps", **site), ranks)
