"""What is registered, and who becomes champion: by the dev set alone."""

import io
import json
import shutil
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from finished_run import FinishedRun, sealed
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import BadConfiguration, BadData, NetworkFault
from infra.site import Site
from infra.store.local import LocalStore
from infra.tracking.client import mlflow_client
from infra.tracking.mlflow_runs import RunFile
from infra.tracking.model_files import local_folder, stored_damage
from infra.tracking.model_version import Version
from infra.tracking.registry import resolve, source_run, versions
from model.config.normalise import STANDARD, Normalise
from tasks.engine.stage import StageCall, StageContext, stage_context
from tasks.registration.aliases import becomes_champion, dev_p_value
from tasks.registration.register_version import register_version
from tasks.stages.register import _still_registered, register


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return FinishedRun(tmp_path_factory.mktemp("register"))


def version(number: int, bleu: float, digest: str) -> Version:
    tags = {"val.bleu": f"{bleu}", "dev_digest": digest, "dev_set": "val"}
    return Version("ende", number, datetime.now(UTC), ("champion",), tags, "run", "source")


P_VALUES = st.floats(0, 1) | st.just("the sentence scores of version 7 were removed")


@given(st.floats(0, 100), st.floats(0, 100), st.booleans(), st.floats(0, 100), st.floats(0, 100), P_VALUES)
def test_the_champion_is_chosen_on_the_same_dev_set_alone_and_beyond_noise(
    own: float, theirs: float, same: bool, own_test: float, their_test: float, p_value: float | str
) -> None:
    challenger = version(8, own, "d1")
    challenger = replace(challenger, tags={**challenger.tags, "test.bleu": f"{own_test}"})
    champion = version(7, theirs, "d1" if same else "d2")
    champion = replace(champion, tags={**champion.tags, "test.bleu": f"{their_test}"})
    better, why = becomes_champion(challenger, champion, False, 0.0, lambda _: p_value)
    is_beyond_noise = isinstance(p_value, str) or p_value <= 0.05
    assert better == (same and own >= theirs and is_beyond_noise)
    assert "version 7" in why
    assert ("within noise" in why) == (same and own >= theirs and not is_beyond_noise)
    assert becomes_champion(challenger, None, True, 0.0, lambda _: p_value)[0]


def test_versions_that_write_lower_case_are_judged_without_case_unless_one_does_not() -> None:
    lower = {"val.source_input": "lower-cased", "dev_signature": "nrefs:1|case:mixed|tok:13a"}
    cased, first, second = (
        replace(version(number, bleu, "d1"), tags={**version(number, bleu, "d1").tags, "val.bleu_lc": f"{lc}", **tags})
        for number, bleu, lc, tags in ((1, 9.0, 30.0, {}), (2, 8.0, 40.0, lower), (3, 7.0, 41.0, lower))
    )
    wins, why = becomes_champion(second, first, False, 0.0, lambda _: 0.01)
    assert wins
    assert why.startswith("dev BLEU lower-cased 41.00 on val is 1.00 above the 40.00")
    assert not becomes_champion(second, cased, False, 0.0, lambda _: 0.01)[0]
    assert becomes_champion(cased, second, False, 0.0, lambda _: 0.01)[0]
    assert "val (dev) 41.00  nrefs:1|case:lc|tok:13a" in second.line()


def test_a_version_below_the_floor_becomes_no_champion(run: FinishedRun) -> None:
    poor = run.register("poor", run.tags(0.25))
    assert poor["aliases"] == ["candidate"]
    assert run.register("poor", run.tags(1.0))["aliases"] == ["candidate", "champion"]
    poorer = becomes_champion(version(2, 0.25, "d1"), version(1, 0.0, "d1"), False, 1.0, lambda _: 0.0)
    assert not poorer[0], "not even above a champion"


def test_a_version_within_noise_of_the_champion_is_a_candidate_and_says_why(run: FinishedRun) -> None:
    run.register("close", run.tags(39.1))
    close = run.register("close", run.tags(39.2), p_value=0.43)
    assert close["aliases"] == ["candidate"]
    why = "dev BLEU 39.20 on val is 0.10 above the 39.10 of the champion, version 1, within noise (p = 0.430)"
    assert close["decision"] == f"not champion: {why}"
    assert "champion" in run.register("close", run.tags(40.2), p_value=0.01)["aliases"]


def test_the_sentences_of_both_dev_sets_are_compared_or_said_to_be_gone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    references = [f"the dog number {n} sees the house of a man" for n in range(40)]
    versions = {"good": references, "close": [*references[:-1], "the dog"], "poor": ["a dog sees"] * 40}
    made = {
        name: sealed(store, "score", {"sentences.parquet": parquet(references, lines)}, item=name, language="en")
        for name, lines in versions.items()
    }

    def champion(key: str) -> Version:
        return replace(version(7, 30.0, "d1"), tags={"dev_set": "val", "key.score.val": key})

    assert dev_p_value(made["good"], champion(made["good"].key)) == 1
    assert dev_p_value(made["close"], champion(made["good"].key)) > 0.05
    assert dev_p_value(made["good"], champion(made["poor"].key)) < 0.01
    assert dev_p_value(made["good"], champion("gone")) == "the sentence scores of version 7 were removed"


def parquet(references: list[str], hypotheses: list[str]) -> bytes:
    file = io.BytesIO()
    ids = [f"val:{n}" for n in range(len(references))]
    pl.DataFrame({"pair_id": ids, "reference": references, "hypothesis": hypotheses}).write_parquet(file)
    return file.getvalue()


def test_aliases_move_by_dev_bleu(run: FinishedRun) -> None:
    def standing() -> dict[str, int]:
        return {alias: v.version for v in versions(run.tracker.uri, "ende") for alias in v.aliases}

    first = run.register("ende", run.tags(30.0))
    assert (first["aliases"], standing()) == (["candidate", "champion"], {"candidate": 1, "champion": 1})
    assert run.register("ende", run.tags(29.5))["aliases"] == ["candidate"]
    assert standing() == {"candidate": 2, "champion": 1}
    assert run.register("ende", run.tags(90.0), modified=True)["aliases"] == []
    assert run.register("ende", run.tags(90.0, digest="another dev set"))["aliases"] == ["candidate"]
    assert standing() == {"candidate": 4, "champion": 1}
    assert run.register("ende", run.tags(30.0))["aliases"] == ["candidate", "champion"]
    assert standing() == {"candidate": 5, "champion": 5}
    tags = {v.version: v.tags for v in versions(run.tracker.uri, "ende")}
    assert "promotion.champion" in tags[5]
    assert tags[3]["modified"] == "true"
    assert "promotion.candidate" not in tags[3]


class Killed(BaseException):
    """Stands for SIGKILL: nothing in this process may catch it."""


@pytest.mark.parametrize(
    ("moment", "calls"),
    [
        ("log_model_artifacts", 1),
        ("create_model_version", 1),
        ("set_model_version_tag", 1),
        ("set_model_version_tag", 2),
        ("set_registered_model_alias", 1),
        ("set_registered_model_alias", 2),
    ],
)
def test_a_killed_registration_is_repeated_without_a_trace(
    run: FinishedRun, monkeypatch: pytest.MonkeyPatch, moment: str, calls: int
) -> None:
    """It is killed after that many calls of ``moment``."""
    name = f"killed-{moment}-{calls}"
    run.register(name, run.tags(30.0))
    run_id = run.tracker.start_stage("register", "", f"{uuid.uuid4()}", {})
    arguments = (run.tracker.uri, run.root, run_id, name, run.model, run.tags(31.0), False, 1.0, lambda _: 0.01)
    kind = type(mlflow_client(run.tracker.uri))
    original, left = getattr(kind, moment), [calls]

    def kills(*words: Any, **named: Any) -> Any:
        done = original(*words, **named)
        left[0] -= 1
        if not left[0]:
            patch.setattr(kind, "finalize_logged_model", lambda *_: None)  # a killed process closes nothing
            raise Killed
        return done

    with monkeypatch.context() as patch:
        patch.setattr(kind, moment, kills)
        with pytest.raises(Killed):
            register_version(*arguments)
    made = register_version(*arguments)
    assert (made["version"], made["aliases"]) == (2, ["candidate", "champion"])
    first, second = sorted(versions(run.tracker.uri, name), key=lambda each: each.version)
    assert (first.aliases, second.aliases) == ((), ("champion", "candidate"))
    assert [move.alias for move in second.promotions] == ["candidate", "champion"]
    models = mlflow_client(run.tracker.uri).search_logged_models(
        [run.tracker._runs.experiment_id], f"source_run_id = '{run_id}'"
    )
    expected = ["FAILED", "READY"] if moment == "log_model_artifacts" else ["READY"]
    assert sorted(model.status for model in models) == expected


def test_a_model_that_cannot_be_stored_leaves_no_version(run: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    store = mlflow_client(run.tracker.uri)

    def broken(*_: object) -> None:
        raise ConnectionError("no answer")

    monkeypatch.setattr(type(store), "log_model_artifacts", broken)
    with pytest.raises(NetworkFault, match="no answer"):
        run.register("unlucky", run.tags())
    assert versions(run.tracker.uri, "unlucky") == []
    left = store.search_logged_models([run.tracker._runs.experiment_id], "name = 'unlucky'")
    assert [model.status for model in left] == ["FAILED"]


def copied(vocabulary: Path, normalise: Normalise, folder: Path) -> None:
    """In place of ``write_normalising``: the vocabulary of the toy is no tokenizer."""
    assert normalise == STANDARD
    shutil.copytree(vocabulary, folder, dirs_exist_ok=True)


def test_the_stage_registers_the_translator_with_its_report(
    run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.stages.register.translator_model", lambda *_: run.model)
    monkeypatch.setattr("tasks.stages.register.write_normalising", copied)
    reported = run.tracker.start_stage("report", "", run.report.key, {})
    run.tracker.log_files(reported, lambda: [RunFile("report.html", b"<p>")])
    run.tracker.finish_stage(reported, "FINISHED", {})
    run_id = run.tracker.start_stage("register", "", "the stage", {})
    arguments = (run.weights, run.vocabulary, run.report, run.scores, run.sets, "val", False, STANDARD)
    site = Site(root=tmp_path, tracking_uri=run.tracker.uri)
    around = StageContext(
        site, StageCall(register, "", {}), lambda *_, **__: None, lambda *_: None, run.tracker, run_id
    )
    with stage_context(around):
        facts = register.body(tmp_path, "staged", *arguments)
    assert facts == {"name": "staged", "version": 1, "aliases": "candidate, champion", "decision": facts["decision"]}
    said = json.loads((tmp_path / "version.json").read_text())
    assert (said["name"], said["version"], said["aliases"]) == ("staged", 1, ["candidate", "champion"])
    assert [file.path for file in run.tracker.client.list_artifacts(run_id)] == ["model_card.md"]
    card = Path(run.tracker.client.download_artifacts(run_id, "model_card.md", f"{tmp_path}")).read_text()
    assert "# staged/1" in card
    assert "models:/staged/1" in card
    produced = run.tracker.client.get_run(run.tracker.run_id).outputs.model_outputs
    own = run.tracker.client.get_run(run_id).outputs.model_outputs
    assert own[0].model_id in [output.model_id for output in produced], "the parent does not show the model"

    # Never without its source: the version names the run of its pipeline, its model that of the stage.
    version = resolve(run.tracker.uri, "staged/1")
    source = source_run(run.tracker.uri, version)
    model = run.tracker.client.get_logged_model(own[0].model_id)
    assert version.stage_run == model.source_run_id == run_id
    assert version.run_id == source["parent"] == run.tracker.run_id
    assert source["run"].endswith(f"/runs/{run.tracker.run_id}")
    assert source["report"].endswith(f"/runs/{reported}/artifacts/report.html")
    of_before = replace(version, run_id=run_id, tags={})
    assert source_run(run.tracker.uri, of_before)["run"] == source["run"]
    assert source_run(run.tracker.uri, of_before)["report"].endswith(f"/runs/{run_id}/artifacts/report/report.html")
    # What MLflow's pages sort models by has one name for all runs, whatever their sets are called.
    metrics = {metric.key: metric.value for metric in model.metrics}
    assert (metrics["dev_bleu"], metrics["test_bleu"], metrics["val.chrf"]) == (34.5, 33.25, 50.0)
    assert (version.dev, version.test) == ("val", "flickr")
    assert {"clean", "learn_bpe", "prepare_sets.val"} <= version.digests.keys()
    above = run.tracker.client.get_registered_model("staged").tags
    assert not above, "on MLflow's page they stand above the versions, of which a screen then shows fewer than three"

    files = {"version.json": (tmp_path / "version.json").read_text()}
    made = sealed(run.store, "register", files, run.weights, run.vocabulary)
    assert _still_registered(made, site)
    with monkeypatch.context() as patch:
        find, again = LocalStore.find, run.weights.manifest
        assert again
        again = replace(again, files={**again.files, "job.log": {"sha256": "0" * 64, "bytes": 1}})
        patch.setattr(LocalStore, "find", lambda *name: again if "average" in name else find(*name))
        assert _still_registered(made, site), "equal weights that were made again have other logs"
    weights = local_folder(run.tracker.uri, version) / "weights" / "said"
    weights.write_text("evil")
    assert not _still_registered(made, site), "the next run stores it again"
    weights.unlink()
    assert not _still_registered(made, site)
    weights.write_text("good")
    assert _still_registered(made, site)
    run.tracker.client.delete_registered_model("staged")
    assert not _still_registered(made, site)


def test_a_damaged_model_is_refused_and_registering_it_again_stores_it_again(run: FinishedRun) -> None:
    uri = run.tracker.uri
    first = run.register("fragile", run.tags())
    version = resolve(uri, "fragile@champion")
    folder = local_folder(uri, version)
    (folder / "weights" / "said").write_text("evil")
    with pytest.raises(BadData):
        local_folder(uri, version)
    assert "weights" in stored_damage(uri, version)
    assert run.register("fragile", run.tags())["version"] == first["version"]
    assert (local_folder(uri, version) / "weights" / "said").read_text() == "good"
    (folder / "vocabulary" / "extra.json").write_text("{}")
    with pytest.raises(BadData, match="vocabulary"):
        local_folder(uri, version)
    shutil.rmtree(folder.parent)
    with pytest.raises(BadConfiguration):
        local_folder(uri, version)
    again = run.register("fragile", run.tags())
    assert (again["version"], again["run_id"]) == (first["version"], first["run_id"])
    assert stored_damage(uri, version) == ""
    assert [known.version for known in versions(uri, "fragile")] == [1]
    assert run.register("fragile", run.tags())["version"] == 2, "an undamaged one stays as it is"
