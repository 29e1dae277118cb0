"""Translates one evaluation set by beam search (§6.1): ``python -m model.translate job.json``.

The inputs are ``weights``, ``vocabulary``, ``pairs`` (shards of the set, for the references), ``text`` (a folder with
``pairs.parquet``, for the sources), and for an ensemble ``weights_2``, …. ``config`` holds ``decoding`` and
``normalise`` (for the sources). It writes

    hypotheses.parquet   a row for each pair, in the set's order
    attention.npz        cross_<i>: cross-attention of example i, float16 (layers, heads, written pieces, source pieces)
                         encoder_0, decoder_0: self-attention of example 0; columns of decoder_0 are inputs (bos …)
    attention.json       [{"pair_id", "source_pieces", "hypothesis_pieces"}, …], in the order of the examples
    metrics.jsonl        progress

Each row also holds the log-probability of the reference, so that scoring needs no model.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .config import Decoding, from_json
from .config.normalise import Normalise
from .data.bpe import TokenizerPair
from .data.shards import Shards
from .decoding.translation import Hypothesis
from .decoding.translator import Translator
from .errors import JobError, bad_data
from .job import Facts, Job, Metrics, StopSignal, run_job
from .metric_names import SENTENCES_PER_SECOND
from .network.weights import load_model
from .numerics import configure_numerics, configure_precision

FOREIGN_UNKNOWN = "characters of foreign scripts unknown"
"""A part of the fact ``source_input``: the vocabulary reads characters of foreign scripts as ``<unk>``."""
LOWER_CASED = "lower-cased"
EXAMPLES = 4
EXAMPLE_LENGTHS = range(6, 25)
"""Lengths of sources and hypotheses for which a figure of the attention is readable."""

COLUMNS = pa.schema(
    [
        ("pair_id", pa.string()),
        ("hypothesis", pa.string()),
        ("score", pa.float64()),
        ("log_probability", pa.float64()),
        ("pieces", pa.int32()),
        ("reference_log_probability", pa.float64()),
        ("reference_pieces", pa.int32()),
        ("finished", pa.bool_()),
    ]
)
"""Log-probabilities are natural logarithms. They and both numbers of pieces include eos: score is log_probability
divided by the length penalty of ``pieces``."""


@dataclass
class ProgressReporter:
    """Writes lines of metrics.jsonl, at most one in ``seconds``; after a stop signal raises JobError (preempted)."""

    metrics: Metrics
    stop: StopSignal
    total: int
    seconds: float
    written: float = field(default_factory=time.monotonic)

    def phase(self, before: int) -> Callable[[int, int], None]:
        """Return the progress callback of a phase; ``before`` sentences were translated before it."""
        started = time.monotonic()

        def progress(done: int, of: int) -> None:
            finished = min(before + done, self.total)
            if self.stop.received:
                raise JobError("preempted", f"asked to end after {finished} of {self.total} sentences")
            now = time.monotonic()
            if now - self.written >= self.seconds or done == of:
                self.written = now
                rate = done / max(now - started, 1e-9)
                self.metrics.write(finished, self.total, {SENTENCES_PER_SECOND: round(rate, 2)})

        return progress


def examples(lengths: Sequence[int], hypotheses: Sequence[Hypothesis]) -> list[int]:
    """Choose rows for attention examples: of moderate length, evenly spread over the set; otherwise the shortest."""
    possible = [row for row, hypothesis in enumerate(hypotheses) if lengths[row] and hypothesis.pieces]
    moderate = [
        row for row in possible if lengths[row] in EXAMPLE_LENGTHS and len(hypotheses[row].pieces) in EXAMPLE_LENGTHS
    ]
    if len(moderate) < EXAMPLES:
        return sorted(sorted(possible, key=lambda row: (lengths[row] + len(hypotheses[row].pieces), row))[:EXAMPLES])
    return [moderate[i * len(moderate) // EXAMPLES] for i in range(EXAMPLES)]


def write_attention(
    out: Path,
    rows: Sequence[int],
    translator: Translator,
    pair_ids: Sequence[str],
    sources: Sequence[Sequence[int]],
    hypotheses: Sequence[Hypothesis],
) -> None:
    """Write attention.npz and attention.json for these rows, including special tokens."""
    arrays = {}
    names = []
    for i, row in enumerate(rows):
        maps = translator.attention_maps(sources[row], hypotheses[row].pieces, hypotheses[row].finished)
        arrays[f"cross_{i}"] = maps.cross.numpy().astype(np.float16)
        if i == 0:
            arrays["encoder_0"] = maps.encoder.numpy().astype(np.float16)
            arrays["decoder_0"] = maps.decoder.numpy().astype(np.float16)
        hypothesis_pieces = translator.vocabulary.target_pieces(hypotheses[row].pieces)
        names.append(
            {
                "pair_id": pair_ids[row],
                "source_pieces": translator.vocabulary.source_pieces(translator.source_tokens(sources[row])),
                "hypothesis_pieces": [*hypothesis_pieces, *(["</s>"] if hypotheses[row].finished else [])],
            }
        )
    np.savez_compressed(out / "attention.npz", **arrays)  # type: ignore[arg-type]
    (out / "attention.json").write_text(json.dumps(names, ensure_ascii=False, indent=1) + "\n")


def load(job: Job) -> tuple[Decoding, Translator]:
    """Return the job's settings of a search, and its models with the kernels and the precision of these settings.

    Raises JobError for missing or damaged weights or vocabulary, or if they do not fit together, ValueError if this
    device does not support the settings.
    """
    decoding = from_json(Decoding, job.config["decoding"])
    configure_numerics(decoding.numerics, job.site)
    device = job.site.torch_device()
    configure_precision("decoding.precision", decoding.precision, device)
    numbers = range(2, sum(name.startswith("weights") for name in job.inputs) + 1)
    model, *others = (load_model(job.inputs[name], device) for name in ("weights", *(f"weights_{n}" for n in numbers)))
    try:
        vocabulary = TokenizerPair.load(job.inputs["vocabulary"])
        return decoding, Translator(model, vocabulary, device, others, decoding.precision == "bf16")
    except ValueError as error:
        raise bad_data(f"{job.inputs['vocabulary']} does not fit these weights: {error}") from error


def work(job: Job) -> Facts:
    started = time.monotonic()
    stop = StopSignal()
    metrics = Metrics(job.out)
    shards = Shards(job.inputs["pairs"])
    decoding, translator = load(job)
    shards.check_pieces("source", translator.model.source_size)
    shards.check_pieces("target", translator.model.target_size)
    rows = range(len(shards))
    pair_ids = [shards.pair_id(row) for row in rows]
    normalise = from_json(Normalise, job.config["normalise"])
    reading = translator.vocabulary.normalising(normalise)
    text = pq.read_table(job.inputs["text"] / "pairs.parquet", columns=["pair_id", "source"])
    if text.column("pair_id").to_pylist() != pair_ids:
        raise bad_data(f"{job.inputs['text']} holds other pairs than the shards of the set: repeat the run")
    sources = reading.encode_source(reading.read(text.column("source").to_pylist()))
    references = [shards.pieces("target", row).tolist() for row in rows]
    try:
        for pair_id, source, reference in zip(pair_ids, sources, references, strict=True):
            translator.check_source(source, f"source of {pair_id}")
            translator.check_target(reference, f"reference of {pair_id}")
    except ValueError as error:
        raise bad_data(str(error)) from error
    reporter = ProgressReporter(metrics, stop, len(rows), job.site.log_seconds)
    try:
        hypotheses = translator.search(sources, decoding, reporter.phase(0))
        log_p = translator.log_probabilities(sources, references, reporter.phase(len(rows)))
    except FloatingPointError as error:
        raise bad_data(f"{job.inputs['weights']}: {error}") from error
    texts = [translator.text(hypothesis) for hypothesis in hypotheses]
    columns = {
        "pair_id": pair_ids,
        "hypothesis": texts,
        "score": [h.score for h in hypotheses],
        "log_probability": [h.log_probability for h in hypotheses],
        "pieces": [h.length for h in hypotheses],
        "reference_log_probability": log_p,
        "reference_pieces": [len(reference) + 1 for reference in references],
        "finished": [h.finished for h in hypotheses],
    }
    pq.write_table(pa.table(columns, schema=COLUMNS), job.out / "hypotheses.parquet", compression="zstd")
    kept = examples([len(source) for source in sources], hypotheses)
    write_attention(job.out, kept, translator, pair_ids, sources, hypotheses)
    unfinished = sum(not hypothesis.finished for hypothesis in hypotheses)
    facts: Facts = {"sentences": len(rows), "unfinished": unfinished, "empty": sum(not text.strip() for text in texts)}
    facts["seconds"] = round(time.monotonic() - started, 3)
    words = reading.splitting.about if reading.splitting else ""
    lower = LOWER_CASED * (reading.lowercases and LOWER_CASED not in words)
    changed = ", ".join(
        filter(None, (reading.normalise.about, FOREIGN_UNKNOWN * reading.foreign_unknown, lower, words))
    )
    return facts | ({"source_input": changed} if changed else {})


if __name__ == "__main__":
    run_job(work)
