"""The data of a run's pictures (curves, filters, lengths, attention), which ``tasks.evaluation.plots`` draws."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from infra.store.store import Artifact
from model.data.shards import Shards
from model.metric_names import BLEU
from tasks.evaluation.training_log import layer_curves, training_curves
from tasks.lazy_libraries import NDArray, np, pl

ATTENTIONS = 4
"""Example sentences whose attention is drawn."""


def attention_examples(folder: Path) -> list[tuple[dict[str, Any], NDArray[np.float64]]]:
    """Example sentences with their cross-attention, of shape (layers, heads, hypothesis pieces, source pieces)."""
    described = json.loads((folder / "attention.json").read_bytes())
    with np.load(folder / "attention.npz") as arrays:
        return [(row, arrays[f"cross_{i}"].astype(np.float64)) for i, row in enumerate(described[:ATTENTIONS])]


def all_heads(folder: Path) -> dict[str, tuple[NDArray[np.float64], list[str], list[str]]]:
    """Each attention of the first example, for ``network_plots.attention_heads``."""
    described = json.loads((folder / "attention.json").read_bytes())
    with np.load(folder / "attention.npz") as arrays:
        encoder, decoder, cross = (arrays[f"{kind}_0"].astype(np.float64) for kind in ("encoder", "decoder", "cross"))
    source = described[0]["source_pieces"]
    hypothesis = described[0]["hypothesis_pieces"]
    return {
        "encoder: source over itself": (encoder, source, source),
        "decoder: translation over itself": (decoder, hypothesis, ["<s>", *hypothesis][: decoder.shape[-1]]),
        "cross: translation over source": (cross, hypothesis, source),
    }


def given(made: Artifact, argument: str) -> Artifact | None:
    """The artifact that the stage of ``made`` received as ``argument``; None if its manifest was removed."""
    found = made.store.given(made.manifest, argument)
    return made.store.artifact(found) if found else None


def length_counts(shards: Shards) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of sentences with 0, 1, 2, … pieces, for the source and for the target."""
    return np.bincount(shards.lengths["source"]), np.bincount(shards.lengths["target"])


def picture_specs(
    corpus: Artifact,
    shards: Artifact,
    run: Artifact,
    hypotheses: Mapping[str, Artifact],
    scores: Mapping[str, Artifact],
) -> Iterator[tuple[str, str, Callable[[Any], bytes]]]:
    """Name, description and drawing function of each picture; the function takes a theme."""
    # matplotlib loads for half a second; a run of cache hits must not wait for it
    from tasks.evaluation import network_plots, plots

    curves = training_curves(run.path() / "metrics.jsonl")
    yield "curves", "Loss, perplexity and learning rate against the update", partial(plots.curves, curves)
    layers = layer_curves(run.path() / "metrics.jsonl")
    if layers:
        yield "layers", "Signs of collapse by layer", partial(network_plots.layers, {"": layers})
    if any(sign in layers for lines in network_plots.BY_LAYER.values() for sign in lines):
        yield "by_layer", "Residuals and entropies against the layer", partial(network_plots.by_layer, layers)
    removed = corpus.facts["rejected_by"]
    read = corpus.facts["read"]
    yield "filters", "Pairs removed by each filter", partial(plots.filters, removed, read)
    texts = {"training": shards} | {name: given(made, "pairs") for name, made in hypotheses.items()}
    counts = {name: length_counts(Shards(text.path())) for name, text in texts.items() if text}
    yield "lengths", "Pieces in a sentence, of the training and of each set", partial(plots.lengths, counts)
    for number, (name, artifact) in enumerate(scores.items()):
        bleu = pl.read_parquet(artifact.path() / "sentences.parquet")[BLEU].to_numpy()
        alt = f"BLEU of single sentences, {name}"
        yield f"sentence_bleu_{number}", alt, partial(plots.sentence_bleu, bleu, name)
    translated = list(hypotheses.values())[-1].path()
    examples = attention_examples(translated)
    for number, (sentence, weights) in enumerate(examples):
        alt = f"Cross-attention of {sentence['pair_id']}"
        sides = sentence["source_pieces"], sentence["hypothesis_pieces"]
        yield f"attention_{number}", alt, partial(network_plots.attention, weights, *sides)
    if examples:
        alt = "All heads of encoder, decoder and cross-attention"
        yield "heads", alt, partial(network_plots.attention_heads, all_heads(translated), "")
