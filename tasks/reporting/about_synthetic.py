"""Says what a run's synthetic pairs are: how many, from which text, by which models; with a few of the pairs.

``pairs`` is the manifest of ``mix`` or ``extract_best``. What is said of artifacts that were removed is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from infra.store.manifest import Manifest
from model.metric_names import DEV_PERPLEXITY
from tasks.lazy_libraries import pl

ReadManifest = Callable[[str, str], Manifest | None]
"""Gives the manifest of a stage and a key."""
EXAMPLES = 3


def about_synthetic(pairs: Manifest, manifest: ReadManifest) -> tuple[str, ...]:
    """Sentences about the synthetic pairs; ``manifest`` finds the artifacts that they were made from."""
    translated = _read(pairs.arguments["translated"], manifest)
    facts = pairs.facts
    if pairs.stage == "mix":
        text = _corpus(_read(translated.arguments["text"], manifest) if translated else None)
        tag = pairs.arguments["tag"]
        said = (
            f"{facts['synthetic']:,} of {facts['pairs']:,} pairs are synthetic (back-translation): the target is a"
            f" line of {text}, the source its translation by a model of the reverse direction.",
            f"The tag {tag} begins each of these sources." if tag else "No tag marks them.",
        )
        models = "Reverse model"
    else:
        text = _corpus(_read(pairs.arguments["pairs"], manifest))
        said = (
            f"{_counted(facts)} synthetic (distillation): the source is one of {text}, the target its"
            f" translation by a teacher in place of the reference. Mean sentence BLEU of these translations:"
            f" {facts['bleu']:.1f}.",
            "No tag marks them.",
        )
        models = "Teacher"
    left_out = f"Lines left out, since no translation of them ended: {facts['untranslated']:,}."
    if translated is None:
        return (*said, left_out)
    named = (f"{models}: {each}." for each in _models(translated, manifest))
    return (*said, left_out, *named, _search(translated.arguments))


def synthetic_examples(pairs: Path, facts: Mapping[str, Any], corpus: Path) -> list[dict[str, Any]]:
    """The first synthetic pairs of a file with these facts; ``reference`` is the target that the pair has in the file
    ``corpus``, None for a line that is not there."""
    synthetic = facts.get("synthetic", facts["pairs"])
    rows = pl.scan_parquet(pairs).slice(facts["pairs"] - synthetic, EXAMPLES).collect()
    known = pl.scan_parquet(corpus).filter(pl.col("pair_id").is_in(rows["pair_id"].to_list()))
    return rows.join(
        known.select("pair_id", reference="target").collect(), on="pair_id", how="left", maintain_order="left"
    ).to_dicts()


def _counted(facts: Mapping[str, Any]) -> str:
    references = facts.get("references", 0)
    if not references:
        return f"All {facts['pairs']:,} pairs are"
    return f"{facts['pairs'] - references:,} of {facts['pairs']:,} pairs, the others with the references, are"


def _read(reference: Mapping[str, str], manifest: ReadManifest) -> Manifest | None:
    return manifest(reference["artifact"], reference["key"])


def _corpus(clean: Manifest | None) -> str:
    return f"{clean.arguments['corpus']['name']}" if clean else "a text that was removed"


def _models(translated: Manifest, manifest: ReadManifest) -> Iterator[str]:
    """Each model by its key, with the seed and the dev perplexity of its training."""
    for weights in (translated.arguments["weights"], *translated.arguments.get("others", ())):
        average = _read(weights, manifest)
        train = _read(average.arguments["run"], manifest) if average else None
        trained = ""
        if train:
            seed = train.arguments["training"]["seed"]
            perplexity = train.facts[DEV_PERPLEXITY]
            trained = f", seed {seed}, last dev perplexity {perplexity:.3f}"
        yield f"{weights['artifact']} {weights['key']}{trained}"


def _search(arguments: Mapping[str, Any]) -> str:
    if "sampling" in arguments:  # by an earlier release
        return "Translations were drawn from the model."
    n_best = arguments.get("n_best", 1)
    chosen = f"; of {n_best} translations, the one nearest to the reference" if n_best > 1 else ""
    return f"Beam search with beam {arguments['decoding']['beam']}{chosen}."
