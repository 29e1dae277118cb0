"""Python loads this at its start where this folder is in PYTHONPATH: every built-in run is small then, in all programs.

Names, fields and commands stay as they are; text, models and trainings are of a size that takes seconds. The text is
that of ``small/`` in the first folder of ``REPRO_MIRRORS``, which ``small_pipeline.small_run`` writes.
"""

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

CATALOGUE = "flows.runs.catalogue"


def text(name: str) -> Any:
    from tasks.corpus.catalogue import File, Text

    content = (Path(os.environ["REPRO_MIRRORS"].split()[0]) / "small" / name).read_bytes()
    return Text(File(f"small/{name}", sha256=hashlib.sha256(content).hexdigest()))


def small_model(model: Any) -> Any:
    return replace(model, layers=1, d_model=16, d_ff=32, heads=2, d_k=8, d_v=8)


def small(run: Any) -> Any:
    """The run with the same names of parts and sets."""
    from flows.runs.synthetic import BackTranslation
    from model.config import Averaging
    from tasks.corpus.catalogue import EvaluationSet, Part
    from tasks.stages.learn_bpe import Vocabulary
    from tasks.stages.shard import Sharding

    source, target = text("train.en"), text("train.de")
    parts = tuple(Part(part.name, source, target) for part in run.corpus.parts)
    short = replace(
        run,
        corpus=replace(run.corpus, source_language="en", target_language="de", parts=parts),
        sets=tuple(EvaluationSet(each.name, text("test.en"), text("test.de")) for each in run.sets),
        vocabulary=Vocabulary(size=400),
        sharding=Sharding(max_pieces=80),
        model=small_model(run.model),
        training=replace(run.training, updates=24, batch_tokens=400, warmup=8, checkpoint_every=4, dev_every=12),
        averaging=Averaging(2),
        decoding=replace(run.decoding, beam=2, max_extra=3),
        min_champion_bleu=0.0,
        expect=(),
        synthetic=None,
    )
    made = run.synthetic
    if isinstance(made, BackTranslation):
        texts = tuple(Part(part.name, target, target) for part in made.monolingual.parts)
        made = replace(made, monolingual=replace(made.monolingual, parts=texts), lines=20)
    elif made:
        made = replace(made, teacher=small_model(made.teacher), n_best=2, decoding=short.decoding)
    return replace(short, synthetic=made)


class SmallCatalogue(MetaPathFinder):
    """Loads the catalogue of runs, then makes each of them small."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != CATALOGUE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec
        assert spec.loader
        load = spec.loader.exec_module

        def load_small(module: ModuleType) -> None:
            load(module)
            shrink(vars(module))

        spec.loader.exec_module = load_small  # type: ignore[method-assign]
        return spec


def shrink(names: dict[str, Any]) -> None:
    """Make every run of the module small, by whatever name it goes."""
    runs = {name: small(run) for name, run in names["RUNS"].items()}
    for name, value in names.items():
        if isinstance(value, names["Run"]):
            names[name] = runs[value.name]
    for table in (names["RUNS"], names["VARIATIONS"]):
        table.update({name: runs[name] for name in table})


sys.meta_path.insert(0, SmallCatalogue())
