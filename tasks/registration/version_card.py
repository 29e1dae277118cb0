"""The model card of a registered version, from its tags, its lineage and its scored sentences."""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from infra.store.manifest import Manifest
from infra.tracking.model_version import scored_sets
from tasks.lazy_libraries import pl
from tasks.registration.model_card import Examples, ModelCard, model_card
from tasks.reporting.examples import translation_examples

SENTENCES = "sentences.parquet"
"""The file of a score that holds the translations."""
EXAMPLES_OF_EACH_KIND = 3
LOAD = """repro translate --model {quoted} < in.txt > out.txt

import mlflow
model = mlflow.pyfunc.load_model({address})
model.predict(["A dog runs."])
"""


def card_from_tags(
    label: str,
    tags: Mapping[str, str],
    manifests: Mapping[str, Manifest],
    sentences_of: Callable[[str], Path | None],
) -> ModelCard:
    """The card of the version ``demo/3``. Its scores are those of its tags, which outlive the artifacts.

    ``manifests`` are the version's lineage, ``sentences_of`` gives the file of a set's translations.
    """
    sets = scored_sets(tags)
    facts = {name: _without_prefix(tags, f"{name}.") for name in sets}
    dev = tags.get("dev_set", "")
    load = LOAD.format(quoted=shlex.quote(label), address=json.dumps(f"models:/{label}"))
    examples_of = example_set(sets, dev)
    return model_card(label, facts, dev, manifests, load, examples_of, read_examples(sentences_of(examples_of)))


def example_set(sets: Iterable[str], dev: str) -> str:
    """The first set that no choice was made on, or else the dev set."""
    return next((each for each in sets if each != dev), dev)


def read_examples(file: Path | None) -> Examples:
    """The best, worst and random translations of a file of scored sentences; none where it is missing or damaged."""
    try:
        found = translation_examples(pl.read_parquet(file)) if file else {}
    except (OSError, pl.exceptions.PolarsError):  # a damaged file costs the examples, not the card
        return {}
    return {kind: rows[:EXAMPLES_OF_EACH_KIND] for kind, rows in found.items()}


def _without_prefix(tags: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {tag.removeprefix(prefix): value for tag, value in tags.items() if tag.startswith(prefix)}
