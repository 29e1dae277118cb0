"""A small finished run whose model is a toy, for tests of registration."""

import uuid
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import sealing

from infra.store.local import LocalStore
from infra.store.store import Artifact, Store
from infra.tracking.model_logging import TextModel
from infra.tracking.tracker import Tracker
from tasks.registration.lineage import lineage
from tasks.registration.register_version import register_version
from tasks.registration.version_tags import version_tags

CODE = """
import mlflow

class Toy(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return list(model_input.iloc[:, 0])

mlflow.models.set_model(Toy())
"""


def sealed(
    store: Store,
    stage: str,
    files: Mapping[str, str | bytes],
    *inputs: Artifact,
    item: str = "",
    arguments: Mapping[str, Any] | None = None,
    **facts: Any,
) -> Artifact:
    return sealing.sealed(
        store,
        f"{stage}{item}".ljust(20, "0"),
        {name: text.encode() if isinstance(text, str) else text for name, text in files.items()},
        stage=stage,
        item=item,
        arguments=arguments or {},
        inputs={f"{made.stage}/{made.key}": made.content for made in inputs},
        facts=facts,
        made={"commit": "c0ffee"},
    )


class FinishedRun:
    """A small finished run: everything ``register`` takes, a toy model and a tracking store."""

    def __init__(self, root: Path) -> None:
        self.store = LocalStore(root / "store")
        archives = [sealed(self.store, "download", {"f": side}, item=side) for side in ("en", "de")]
        corpus = sealed(self.store, "clean", {"pairs": "a b"}, *archives, pairs=1)
        self.vocabulary = sealed(self.store, "learn_bpe", {"tokenizer.json": "{}"}, corpus)
        training = sealed(self.store, "train", {"model.json": "{}"}, corpus, self.vocabulary)
        self.weights = sealed(self.store, "average", {"said": "good"}, training)
        self.report = sealed(
            self.store, "report", {"report.html": "<title>m</title><p>", "curves.png": "png", "notes.txt": ""}
        )
        self.sets = {s: sealed(self.store, "prepare_sets", {"pairs": s}, item=s, pairs=2) for s in ("val", "flickr")}
        facts: dict[str, Any] = {"chrf": 50.0, "signature": "13a", "sentences": 2}
        self.scores = {
            name: sealed(self.store, "score", {}, pairs, item=name, bleu=bleu, references_sha256=pairs.content, **facts)
            for (name, pairs), bleu in zip(self.sets.items(), (34.5, 33.25), strict=True)
        }
        package = root / "toy"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "pyfunc.py").write_text(CODE)
        folders = {"weights": self.weights.path(), "vocabulary": self.vocabulary.path()}
        libraries, example = ("numpy",), ("A dog runs.",)
        self.model = TextModel(package / "pyfunc.py", package, folders, {"beam": 4, "alpha": 0.6}, libraries, example)
        self.root = root

    @cached_property
    def tracker(self) -> Tracker:
        """Made when a test first needs MLflow's database."""
        made = Tracker(f"sqlite:///{self.root}/mlflow.db", self.root / "mlflow-artifacts")
        made.start("ende", "ende", {}, {})
        return made

    def tags(self, bleu: float = 34.5, digest: str = "d1") -> dict[str, str]:
        tags = version_tags(self.scores, "val", lineage({}, [self.weights]))
        return {**tags, "val.bleu": f"{bleu}", "dev_bleu": f"{bleu}", "dev_digest": digest}

    def register(
        self, name: str, tags: Mapping[str, str], modified: bool = False, p_value: float | str = "no sentences"
    ) -> dict[str, Any]:
        run_id = self.tracker.start_stage("register", "", f"{uuid.uuid4()}", {})
        return register_version(
            self.tracker.uri, self.root, run_id, name, self.model, tags, modified, 1.0, lambda _: p_value
        )
