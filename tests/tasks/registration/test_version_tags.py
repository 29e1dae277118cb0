"""What the tags of a version and its description say: scores, protocol, data, lineage, decoding."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from finished_run import FinishedRun, sealed
from sealing import sealed as sealed_as

from infra.store.local import LocalStore
from infra.store.store import Artifact
from infra.tracking.model_version import make_version
from model.config import Decoding
from tasks.registration.lineage import dev_decoding, lineage, training_text
from tasks.registration.version_tags import model_metrics, version_tags


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return FinishedRun(tmp_path_factory.mktemp("registered"))


def test_a_version_has_tags_for_scores_protocol_lineage_and_commit(run: FinishedRun) -> None:
    tags = version_tags(run.scores, "val", lineage(run.scores, [run.weights]))
    assert (tags["val.bleu"], tags["flickr.bleu"], tags["flickr.sentences"]) == ("34.5", "33.25", "2")
    assert (tags["dev_set"], tags["dev_bleu"], tags["dev_signature"]) == ("val", "34.5", "13a")
    assert tags["dev_digest"] == tags["digest.prepare_sets.val"] == run.sets["val"].content
    assert tags["key.train"] == "train".ljust(20, "0")
    assert {"key.clean", "key.learn_bpe", "key.average", "digest.clean", "git_commit", "key.score.val"} <= set(tags)
    assert tags["git_commit.train"] == "c0ffee"
    assert not [tag for tag in tags if "download" in tag]


def test_a_set_with_noise_is_never_the_test_set(run: FinishedRun) -> None:
    noised = {"val": run.scores["val"], "val+caps": run.scores["flickr"]}
    assert "test_set" not in version_tags(noised, "val", {})
    tags = version_tags({**noised, "flickr": run.scores["flickr"]}, "val", {})
    assert tags["test_set"] == "flickr"
    version = make_version("m", 1, 0, "", "", version_tags(noised, "val", {}), ())
    assert version.test == ""
    assert "val_caps.bleu" in model_metrics(tags), "MLflow takes no + in a name"


def test_training_text_is_that_of_the_run_not_of_its_initial_weights(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)

    def trained(name: str, language: str, *start: Artifact) -> Artifact:
        def made(stage: str, item: str, arguments: Mapping[str, Any], *inputs: Artifact) -> Artifact:
            return sealed(store, stage, {}, *inputs, item=name + item, arguments=arguments)

        def said(artifact: Artifact) -> dict[str, str]:
            return {"artifact": artifact.stage, "key": artifact.key}

        clean = made("clean", "", {"corpus": {"source_language": language, "target_language": "en", "name": "toy"}})
        shards = made("shard", "train", {"pairs": said(clean), "sharding": {"max_pieces": 80, "min_pieces": 1}}, clean)
        dev = made("shard", "dev", {"sharding": {"max_pieces": 2**31 - 1}})
        training = made("train", "", {"dev": said(dev), "shards": said(shards)}, *start, dev, shards)
        return made("average", "", {"run": said(training)}, training)

    weights = trained("b", "fr", trained("a", "de"))
    assert training_text(weights) == {"source_language": "fr", "target_language": "en", "max_pieces": 80}
    gone = Artifact("average", "gone", tmp_path / "average" / "gone", home=LocalStore(tmp_path))
    assert training_text(gone) == {}


def test_what_another_run_made_first_has_the_names_of_this_run(tmp_path: Path) -> None:
    """``training.seed=2`` after an ensemble of seeds 1 and 2, and a student after its teacher's own run."""
    store = LocalStore(tmp_path)

    def made(stage: str, key: str, item: str, argument: str = "", given: Artifact | None = None) -> Artifact:
        arguments = {argument: {"artifact": given.stage, "key": given.key}} if given else {}
        inputs = {f"{given.stage}/{given.key}": given.content} if given else {}
        return sealed_as(store, key, {}, stage=stage, item=item, arguments=arguments, inputs=inputs)

    teacher = made("train", "teacher", "")
    text = made("extract_best", "text", "", "translations", teacher)
    training = made("train", "own", "seed-2", "pairs", text)
    weights = made("average", "own", "seed-2", "run", training)
    hypotheses = made("translate", "own", "dev/seed-2", "weights", weights)
    scored = made("score", "own", "dev/seed-2", "hypotheses", hypotheses)
    found = lineage({"dev": scored})
    assert {name: each.key for name, each in found.items()} == {
        **dict.fromkeys(("score.dev", "translate.dev", "average", "train"), "own"),
        "extract_best": "text",
    }


def test_a_version_decodes_as_its_dev_set_was_decoded(run: FinishedRun) -> None:
    decoding = {"class": "Decoding", "beam": 4, "alpha": 2.0, "max_extra": 50}
    hypotheses = sealed(run.store, "translate", {}, item="val", arguments={"decoding": decoding})
    made = lineage({}, [hypotheses])
    assert dev_decoding(made, "val") == Decoding(alpha=2.0)
    assert dev_decoding({}, "val") == Decoding()
    assert version_tags(run.scores, "val", made)["decoding.alpha"] == "2.0"


def test_equal_references_are_the_same_dev_set_in_any_file(run: FinishedRun) -> None:
    facts = {**run.scores["val"].facts, "references_sha256": "r1"}
    scores = {"val": replace(run.scores["val"], facts=facts)}
    assert version_tags(scores, "val", {})["dev_digest"] == "r1"
