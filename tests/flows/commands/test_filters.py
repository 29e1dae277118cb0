"""``repro filters`` prints what ``clean`` recorded, and the same samples each time."""

import json
import time
from pathlib import Path

import polars as pl
import pytest
from small_pipeline import run_small

from flows.commands.filters import filters
from flows.inspection.trace import find_made
from flows.runner.outcome import StageFailed
from flows.runner.request import RunRequest, make_plan
from flows.runs import RUNS
from infra.errors import BadConfiguration
from infra.site import Site, open_store


def explained(capsys: pytest.CaptureFixture[str], **options: int) -> dict[str, dict[str, object]]:
    filters("small", as_json=True, **options)  # type: ignore[arg-type]
    return {each["rule"]: each for each in json.loads(capsys.readouterr().out)["filters"]}


@pytest.mark.usefixtures("small")
def test_counts_and_samples_are_those_of_the_artifact(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    filters("small")
    assert "lines count from 0" in capsys.readouterr().out
    assert explained(capsys, samples=2) == found
    assert found != explained(capsys, samples=2, seed=2)
    monkeypatch.setattr("tasks.stages.clean.FEWEST_JUDGED", 1)
    filters("small", overrides=("filters.max_rejected=0",))
    assert "lines count from 0" in capsys.readouterr().out, "a limit lowered since hides nothing"


def test_text_that_is_not_cleaned_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", str(tmp_path))
    with pytest.raises(BadConfiguration, match="repro run demo --until clean"):
        filters("demo")
    with pytest.raises(BadConfiguration, match="--samples is -1"):
        filters("demo", samples=-1)
    with pytest.raises(BadConfiguration, match="--seed is -1"):
        filters("demo", seed=-1)


@pytest.mark.usefixtures("small")
def test_the_rejections_of_a_refused_text_are_kept_until_it_is_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    refusing = ("filters.rules=Length(min=8),NotIn",)
    with pytest.raises(
        StageFailed, match="clean failed: The filters reject.*`repro filters`, with the run and its --set"
    ):
        run_small(RunRequest("demo", until="clean", overrides=refusing))
    capsys.readouterr()
    filters("demo", overrides=refusing, as_json=True)
    out, said = capsys.readouterr()
    rule, other = json.loads(out)["filters"]
    folder = Path(json.loads(out)["clean"])
    assert rule["rejected"] + other["rejected"] == pl.read_parquet(folder / "rejected.parquet").height > 0
    assert 0.2 < rule["share"] < 1
    assert len(rule["samples"]) == 3
    assert "The filters reject" in said
    assert "`repro filters`" not in said
    assert sorted(path.name for path in folder.iterdir()) == ["refused.json", "rejected.parquet"]
    assert not list(folder.parent.glob("*.partial-*"))
    assert [each.place for each in open_store(Site.named()).leftovers(time.time() + 1)] == [f"clean/{folder.name}"]
