"""``repro filters`` prints what ``clean`` recorded, and the same samples each time."""

import json
from pathlib import Path

import polars as pl
import pytest

from flows.commands.filters import filters
from flows.inspection.trace import find_made
from flows.runner.request import RunRequest, make_plan
from flows.runs import RUNS
from infra.errors import BadConfiguration


def explained(capsys: pytest.CaptureFixture[str], **options: int) -> dict[str, dict[str, object]]:
    filters("small", as_json=True, **options)  # type: ignore[arg-type]
    return {each["rule"]: each for each in json.loads(capsys.readouterr().out)["filters"]}


@pytest.mark.usefixtures("small")
def test_counts_and_samples_are_those_of_the_artifact(capsys: pytest.CaptureFixture[str]) -> None:
    folder = find_made(make_plan(RunRequest("small", until="clean").resolve())).made["clean", ""].path()
    rejected = pl.read_parquet(folder / "rejected.parquet")
    found = explained(capsys, samples=2)
    assert list(found) == [rule.name for rule in RUNS["small"].filters.rules]
    assert sum(each["rejected"] for each in found.values()) == rejected.height > 0  # type: ignore[misc]
    by = dict(rejected.select("pair_id", "filter").iter_rows())
    for name, each in found.items():
        samples = each["samples"]
        assert isinstance(samples, list)
        assert len(samples) == min(2, each["rejected"])  # type: ignore[call-overload]
        assert all(by[sample["pair_id"]] == name for sample in samples)
    assert explained(capsys, samples=2) == found
    assert found != explained(capsys, samples=2, seed=2)


def test_text_that_is_not_cleaned_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", str(tmp_path))
    with pytest.raises(BadConfiguration, match="repro run demo --until clean"):
        filters("demo")
    with pytest.raises(BadConfiguration, match="--samples is -1"):
        filters("demo", samples=-1)
