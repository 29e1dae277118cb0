"""A record that is truncated, edited by hand or of another version is skipped with one warning by whatever reads it."""

import errno
import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from dead_process import dead_process
from hypothesis import given
from hypothesis import strategies as st
from made_up_roots import record

from flows.commands.status import status
from flows.runner import records
from flows.runner.interrupted import attempt_to_resume, close_dead_runs
from flows.runner.recorded_runs import (
    UnreadableRecord,
    arguments_of,
    read_headers,
    read_run,
    read_runs,
    run_names,
    starts_to_compare,
)
from flows.runner.request import RunRequest, plan
from flows.runs import RUNS
from infra.errors import DiskFault
from infra.site import Site

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
CHECK = {"place": "score dev bleu", "limit": "bleu >= 1", "bound": 1.0, "warns": False, "value": 2.0, "holds": True}
STAGE = {"stage": "clean", "form": {"a": 1}, "failures": ["no"]}
NEEDED = ("run", "overrides", "outcome", "stages")


def whole(root: Path, hours: int = 0, **changes: Any) -> Path:
    return record(root, "demo", BEGAN + timedelta(hours=hours), [STAGE], **{"checks": [CHECK], **changes})


def rewrite(path: Path, fields: Any) -> None:
    path.write_text(json.dumps(fields, indent=1))


@pytest.mark.parametrize("compact", [False, True])
def test_only_what_says_of_which_run_it_is_must_be_there(tmp_path: Path, compact: bool) -> None:
    path = whole(tmp_path, process=dead_process(), outcome="RUNNING")
    fields = json.loads(path.read_text())
    assert set(NEEDED) < set(fields)
    for missing in fields:
        rest = {name: value for name, value in fields.items() if name != missing}
        path.write_text(json.dumps(rest, indent=None if compact else 1))
        if missing in NEEDED:
            with pytest.raises(UnreadableRecord, match=f"{path} .*'{missing}' is missing"):
                read_run(path)
        else:
            assert read_run(path).command == "repro run demo"
    rewrite(path, {**fields, "later": 1, "asked": {**fields["asked"], "of a later version": None}})
    assert read_run(path).run == "demo"


def test_a_stage_without_a_name_makes_its_record_unreadable(tmp_path: Path) -> None:
    path = whole(tmp_path)
    fields = json.loads(path.read_text())
    for field in ("stage", "item", "key", "state"):
        stage = {name: value for name, value in fields["stages"][0].items() if name != field}
        rewrite(path, {**fields, "stages": [stage]})
        with pytest.raises(UnreadableRecord, match=f"'{field}' is missing"):
            read_run(path)
        assert list(read_runs(tmp_path)) == []


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["run", "force", "key"]), inner),
    max_leaves=4,
)


@given(st.data())
def test_whatever_a_field_holds_every_reader_goes_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("root")
    sound, path = whole(root), whole(root, 1, process="gone", outcome="RUNNING")
    fields = json.loads(path.read_text())
    place = data.draw(st.sampled_from([fields, fields["asked"], fields["stages"][0], fields["checks"][0]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(ANYTHING)
    rewrite(path, fields)
    for each in read_headers(root):
        assert each.command
    found = list(read_runs(root, "demo"))
    assert [each.as_json()["record"] for each in found][-1] == str(sound)
    assert isinstance(sum(each.seconds for each in found), float)
    for each in found:
        arguments_of(each)


def test_a_plan_is_compared_with_the_newest_start_of_the_same_settings_then_with_the_newest(tmp_path: Path) -> None:
    assert not [*starts_to_compare(tmp_path, "demo", ())]
    plain, other = whole(tmp_path), whole(tmp_path, 1, overrides=["a=1"])
    found = [[each.path for each in starts_to_compare(tmp_path, "demo", set_)] for set_ in ((), ("a=1",), ("b=2",))]
    assert found == [[plain, other], [other, plain], [other, plain]]


@given(st.integers(1, 600))
def test_a_truncated_record_is_skipped(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    root = tmp_path_factory.mktemp("root")
    sound, path = whole(root), whole(root, 1)
    path.write_bytes(path.read_bytes()[:-length])
    assert [each.path for each in read_runs(root)] == [sound]


def test_a_run_goes_on_beside_a_record_without_a_field_and_names_its_file_once(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site.named()
    path = record(site.root, "small", BEGAN, [STAGE], outcome="RUNNING", process=dead_process())
    fields = json.loads(path.read_text())
    del fields["overrides"]
    rewrite(path, fields)
    (path.parent / "20261101T000001-000000-seeds.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        assert plan(RunRequest("small", until="clean")).rows
        status(close=True)
        assert close_dead_runs(site) == 0
    assert "small" in RUNS
    assert [str(path) in each.getMessage() for each in caplog.records] == [True], "one warning that names the file"


def test_a_forced_run_is_not_begun_anew_because_its_record_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = dict.fromkeys(records.REQUEST_FIELDS, "") | {"run": "demo", "force": ("train",), "overrides": ()}
    records.write(tmp_path, "demo", asked, [], records.KILLED, datetime.now(UTC), attempt="first")
    site = Site(root=tmp_path)
    assert attempt_to_resume(site, "demo", asked)
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=OSError(errno.ESTALE, "not now")))
    with pytest.raises(DiskFault, match="not now"):
        attempt_to_resume(site, "demo", asked)


def test_a_truncated_record_of_a_dead_run_is_not_closed(tmp_path: Path) -> None:
    site = Site.named()
    path = record(site.root, "demo", BEGAN, [STAGE], outcome="RUNNING", process=dead_process())
    text = path.read_text()[:-3]
    path.write_text(text)
    assert close_dead_runs(site) == 0
    assert path.read_text() == text


NAMES = ("Größe", "Grüße", "Gr-e")


def test_runs_whose_names_differ_beyond_ascii_share_no_record(tmp_path: Path) -> None:
    request = vars(RunRequest("demo"))
    files = [records.write(tmp_path, name, request, [], "FINISHED", BEGAN) for name in NAMES]
    assert len(set(files)) == 3
    assert files[2].parent.name == "Gr-e", "folders of ASCII names keep their names"
    assert run_names(tmp_path) == sorted(NAMES)
    for name, path in zip(NAMES, files, strict=True):
        assert [(each.run, each.path) for each in read_runs(tmp_path, name)] == [(name, path)]
