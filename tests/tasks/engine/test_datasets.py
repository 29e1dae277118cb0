"""The text that stages read is named with digest, files and counts, for stages that train or score."""

from pathlib import Path
from typing import Any

import pytest
from finished_run import sealed

from infra.store.local import LocalStore
from infra.store.store import Artifact
from tasks.engine.datasets import datasets
from tasks.engine.stage import StageCall, stage

FILE = {"class": "File", "path": "toy/train.en", "sha256": "ab"}


def said(artifact: Artifact) -> dict[str, str]:
    return {"artifact": artifact.stage, "key": artifact.key}


class Text:
    """The artifacts of a corpus and two sets."""

    def __init__(self, root: Path) -> None:
        store = LocalStore(root)
        corpus = {"class": "Corpus", "name": "toy", "parts": [{"class": "Part", "source": {"file": FILE}}]}
        self.clean = sealed(store, "clean", {"pairs": "a"}, arguments={"corpus": corpus}, read=10, pairs=8, rejected=2)
        self.mixture = sealed(store, "mix", {"pairs": "b"}, arguments={"pairs": said(self.clean)}, pairs=20)
        self.sets = {
            name: sealed(store, "prepare_sets", {"pairs": name}, item=name, pairs=3) for name in ("dev", "test")
        }
        made_of = {"train": self.clean, "mixed": self.mixture, **self.sets}
        self.shards = {
            name: sealed(store, "shard", {"pairs": name}, item=name, arguments={"pairs": said(made)})
            for name, made in made_of.items()
        }
        self.weights = sealed(store, "average", {})


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return Text(tmp_path)


def named(name: str, **arguments: Any) -> list[tuple[str, str]]:
    def body(out: Path, **_: Any) -> dict[str, Any]:
        return {}

    body.__name__ = name
    call = StageCall(stage(version=1)(body), "", arguments)
    return [(data.context, data.name) for data in datasets(call)]


def test_a_training_reads_its_corpus_and_its_dev_set(text: Text) -> None:
    assert sorted(named("train", shards=text.shards["train"], dev=text.shards["dev"])) == [
        ("dev", "dev"),
        ("train", "toy"),
    ]
    assert ("train", "toy mix") in named("train", shards=text.shards["mixed"], dev=text.shards["dev"])


def test_a_registration_names_dev_and_test_set_and_a_score_its_set(text: Text) -> None:
    assert named("register", weights=text.weights, sets=text.sets, dev="dev") == [("dev", "dev"), ("test", "test")]
    assert named("score", hypotheses=text.weights, pairs=text.sets["dev"]) == [("evaluation", "dev")]
    assert named("clean", exclude=tuple(text.sets.values())) == []


def test_a_dataset_has_the_digest_of_its_pairs_its_files_and_counts(text: Text) -> None:
    @stage(version=1)
    def train(out: Path, shards: Artifact) -> dict[str, Any]:
        return {}

    (data,) = datasets(StageCall(train, "", {"shards": text.shards["train"]}))
    assert data.digest == text.clean.content
    assert data.source == {"uri": f"clean/{text.clean.key}", "files": ["toy/train.en"]}
    assert data.profile == {"pairs": 8, "read": 10, "rejected": 2}
