"""Makes the steps of a trace that need the model: the batch that trained a pair, and decoding its source again."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flows.runs import Run
from infra.site import Site
from infra.store.store import Artifact
from model.config import Decoding
from model.config.special_pieces import EOS, SPECIAL_TOKENS

if TYPE_CHECKING:
    from model.decoding.beam_search import BeamEntry
    from model.decoding.translator import Translator


def batch_of(run: Run, training: Artifact, shards: Artifact, row: int) -> dict[str, Any]:
    """Make the step ``trained`` of a row, counted over all shards. Updates count from 1.

    ``epoch_updates`` is the number of updates in the epoch, ``updates`` that of the training, which may end earlier.
    """
    from model.data.shards import Shards
    from model.training.setup import sampler_of

    batches = sampler_of(run.model, run.training, Shards(shards.path())).epoch(0)
    index = next(index for index, rows in enumerate(batches) if row in rows)
    pairs = len(batches[index])
    updates = training.facts.get("updates", run.training.updates)
    says = f"update {index + 1:,} of {len(batches):,} in the first epoch, with {pairs - 1:,} other pairs"
    if index + 1 > updates:
        says = f"never: it would be in {says}, but training ended after {updates:,}"
    counts = {"update": index + 1, "pairs": pairs, "epoch_updates": len(batches), "updates": updates}
    return {"says": says, **counts}


def decode(
    decoding: Decoding, site: Site, weights: Artifact, vocabulary: Artifact, source: tuple[int, ...]
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Decode one sentence with the averaged weights; return the step ``decoded`` and the cross-attention (§3.2.3).

    ``beams`` has all finished hypotheses, best first, also those beyond the beam; if fewer finished, cut ones follow.
    ``steps`` has the live and the newly finished hypotheses of each step, the likeliest first. ``attended`` has for
    each target piece the source piece with the largest weight, by the mean over the heads of the upper half of the
    layers, as in the report's picture.
    """
    from model.decoding.translator import Translator

    threads = site.threads_each * (site.ranks // site.nodes)
    translator = Translator.load(weights.path(), vocabulary.path(), site.device, threads)
    translator.check_source(source, "the source")
    hypotheses, steps = translator.search_steps(source, decoding)
    best = hypotheses[0]
    source_pieces = translator.vocabulary.source_pieces(translator.source_tokens(source))
    written = translator.vocabulary.target_pieces([*best.pieces, EOS][: best.length])
    attention = translator.attention_maps(source, best.pieces, best.finished).cross.double().numpy()
    mean = attention[len(attention) // 2 :].mean(axis=(0, 1))
    values = {
        "beams": [found.as_json() | {"text": translator.text(found)} for found in hypotheses],
        "steps": [list(_beam_rows(translator, entries)) for entries in steps],
        "source_pieces": source_pieces,
        "written_pieces": written,
        "attended": [
            {"written": piece, "source": source_pieces[row.argmax()], "weight": round(float(row.max()), 4)}
            for piece, row in zip(written, mean, strict=True)
        ],
    }
    return values, attention


def _beam_rows(translator: "Translator", entries: Iterable["BeamEntry"]) -> Iterator[dict[str, Any]]:
    """Yield the hypotheses of a step. ``rank`` is the place in the beam, from 1; 0: the hypothesis ended with eos.

    ``continues`` is the rank of the previous step's hypothesis that ``piece`` extends, 0 in the first step. ``score``
    is ``log_probability`` over the length penalty of its present length.
    """
    rank = 0
    for entry in entries:
        found = entry.hypothesis
        ended = found.finished
        rank += not ended
        yield {
            "rank": 0 if ended else rank,
            "continues": entry.parent + 1 if found.length > 1 else 0,
            "piece": SPECIAL_TOKENS[EOS] if ended else translator.vocabulary.target_pieces([found.pieces[-1]])[0],
            "text": translator.text(found),
            "score": found.score,
            "log_probability": found.log_probability,
            "pieces": found.length,
            "ended": ended,
        }
