"""Translates training text, block by block, for synthetic pairs: ``python -m model.translate_text job.json``.

The inputs are ``weights``, ``vocabulary`` and ``text`` (a folder with ``pairs.parquet``; its source side is
translated), and for an ensemble ``weights_2``, …. ``config`` holds ``decoding``, ``n_best``, ``lines`` (the maximum
lines to translate, 0 for all) and ``block_lines``. It writes

    00000.parquet  00001.parquet  …    pair_id, source, hypotheses (best first); ``block_lines`` lines each
    metrics.jsonl                      progress

A block is renamed when it is complete; the next attempt skips existing blocks. Only finished hypotheses are kept: a
line has none if it is too long for the model or if its translation does not end.
"""

import json
import time
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from .decoding.translation import Hypothesis
from .decoding.translator import Translator
from .errors import bad_data
from .job import Facts, Job, Metrics, StopSignal, run_job
from .network.weights import sync
from .translate import ProgressReporter, load

BLOCK_SECONDS = "block_seconds"
COLUMNS = pa.schema([("pair_id", pa.string()), ("source", pa.string()), ("hypotheses", pa.list_(pa.string()))])


def texts(translator: Translator, hypotheses: Sequence[Hypothesis]) -> list[str]:
    """Return the different texts of the finished hypotheses, in order, without empty ones."""
    found = (translator.text(hypothesis).strip() for hypothesis in hypotheses if hypothesis.finished)
    return [text for text in dict.fromkeys(found) if text]


def work(job: Job) -> Facts:
    config = job.config
    stop = StopSignal()
    metrics = Metrics(job.out)
    decoding, translator = load(job)
    with pq.ParquetFile(job.inputs["text"] / "pairs.parquet") as file:
        total = min(file.metadata.num_rows, config["lines"] or file.metadata.num_rows)
        reporter = ProgressReporter(metrics, stop, total, job.site.log_seconds)
        first = 0
        for number, read in enumerate(file.iter_batches(config["block_lines"], columns=["pair_id", "source"])):
            block = read.slice(0, total - first)
            path = job.out / f"{number:05}.parquet"
            if not block.num_rows:
                break
            if not path.exists():
                began = time.monotonic()
                lines = block.column("source").to_pylist()
                pieces = translator.vocabulary.encode_source(lines)
                # A line without pieces gets an empty hypothesis, which is not kept.
                sources = [source if len(source) <= translator.longest_source else [] for source in pieces]
                progress = reporter.phase(first)
                try:
                    found = translator.search_n_best(sources, decoding, config["n_best"], progress=progress)
                except FloatingPointError as error:
                    raise bad_data(f"{job.inputs['weights']}: {error}") from error
                hypotheses = [texts(translator, each) for each in found]
                table = pa.table([block.column("pair_id").to_pylist(), lines, hypotheses], schema=COLUMNS)
                partial = path.with_suffix(".partial")
                pq.write_table(table, partial, compression="zstd")
                sync(partial)  # the next attempt does not check the block again
                partial.replace(path)
                spent = {BLOCK_SECONDS: round(time.monotonic() - began, 3)}
                metrics.write(first + block.num_rows, total, spent)
            first += block.num_rows
    # Counted from the files, because an earlier attempt may have written some of them.
    rows = map(json.loads, (job.out / "metrics.jsonl").read_text().splitlines())
    seconds = sum({row["done"]: row[BLOCK_SECONDS] for row in rows if BLOCK_SECONDS in row}.values())
    untranslated = 0
    for path in job.out.glob("*.parquet"):
        block = pq.read_table(path, columns=["hypotheses"])
        untranslated += sum(not found for found in block.column("hypotheses").to_pylist())
    return {"lines": first, "untranslated": untranslated, "seconds": round(seconds, 3)}


if __name__ == "__main__":
    run_job(work)
