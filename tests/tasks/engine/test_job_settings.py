"""Tests of what a stage tells its job about the site: where and how to compute."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from infra.site import Site
from model.config import Numerics
from model.job import JobSettings
from tasks.engine.jobs import job_spec
from tasks.engine.stage import JobRequest

SITE = Site(
    device="cuda", threads=3, compile="always", packed_attention="own",
    micro_batch_tokens=100, log_seconds=1.5, resume_seconds=7.0, rank_timeout_seconds=9,
)  # fmt: skip
"""No setting has its default."""


def settings(out: Path, numerics: Numerics) -> dict[str, Any]:
    """What ``job.json`` says of ``SITE``."""
    return dict(job_spec(SITE, JobRequest("model.translate", {}, {}, out, numerics=numerics)).site)


def test_a_job_gets_every_setting_of_its_site(tmp_path: Path) -> None:
    defaults = JobSettings()
    given = {field.name: getattr(SITE, field.name) for field in fields(JobSettings)}
    assert [name for name, value in given.items() if value == getattr(defaults, name)] == []
    assert settings(tmp_path, "fast") == given


def test_strict_numerics_takes_one_thread_and_does_not_compile(tmp_path: Path) -> None:
    changed = {"threads": 1, "compile": "never", "packed_attention": "torch", "micro_batch_tokens": 0}
    assert settings(tmp_path, "strict") == {**settings(tmp_path, "fast"), **changed}
