"""Makes the files about an artifact that the MLflow run of its stage shows: tables, pictures, logs, the page.

A table larger than ``STAGE_FILE_BYTES`` is cut to its first rows, such a log to its last lines, with a remark. A file
that is useless in part is shown whole, up to ``WHOLE_FILE_BYTES``. If the licence of a text forbids copies, none of its
sentences is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from infra.store.store import Artifact
from infra.tracking.mlflow_runs import RunFile
from model.data.bpe import SOURCE_FILE, TARGET_FILE
from model.data.shards import Shards
from model.metric_names import DEV_PERPLEXITY
from tasks.cleaning.filters import SIDES
from tasks.corpus.catalogue import may_copy
from tasks.engine.stage import StageCall
from tasks.evaluation.training_log import metric_rows, training_curves
from tasks.lazy_libraries import np, pl
from tasks.reporting.frequent_tokens import TOKENS_FILE
from tasks.reporting.pictures import length_counts

STAGE_FILE_BYTES = 1_000_000
WHOLE_FILE_BYTES = 10_000_000
SAMPLES = 10
"""Rejected pairs of each filter."""
FORBIDDEN = RunFile("left-out.txt", b"The licence of the text forbids copies, so no sentence of it is shown here.\n")


def stage_files(call: StageCall, made: Artifact) -> Iterator[RunFile]:
    """The files about ``made``, the artifact of ``call``; none if the stage has nothing to show."""
    yield from whole(*(made.path() / name for name in WHOLE.get(call.stage.name, ())))
    if files := FILES.get(call.stage.name):
        yield from files(call, made)
    if quotes := QUOTES.get(call.stage.name):
        # Sentences come from the texts that the stage, or the stages of its inputs, read.
        inputs = (each.manifest for each in call.inputs)
        texts = [call.form, *(manifest.arguments for manifest in inputs if manifest)]
        yield from quotes(call, made) if may_copy(texts) else (FORBIDDEN,)


def table(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> RunFile:
    """A table as MLflow's ``log_table`` writes it. Beyond the limit it has the first rows, and a row that says so."""
    texts = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    head = json.dumps(columns, ensure_ascii=False).encode()
    ends = np.cumsum([len(text) + 2 for text in texts])
    shown = int(np.searchsorted(ends, STAGE_FILE_BYTES - len(head) - 500, side="right"))
    if shown < len(rows):
        said = f"the first {shown:,} of {len(rows):,} rows: a file here has at most {STAGE_FILE_BYTES:,} bytes"
        texts[shown:] = [json.dumps([said, *[""] * (len(columns) - 1)]).encode()]
    content = b'{"columns": ' + head + b', "data": [' + b", ".join(texts) + b"]}"
    return RunFile(name, content, is_table=True)


def log_end(file: Path) -> RunFile:
    """A log. Beyond the limit it has the last lines, after a line that says so. An empty log becomes a sentence."""
    size = file.stat().st_size
    with file.open("rb") as log:
        log.seek(max(0, size - STAGE_FILE_BYTES + 200))
        text = log.read()
    if len(text) < size:
        text = text.partition(b"\n")[2]
        said = f"(the last {len(text):,} of {size:,} bytes: a file here has at most {STAGE_FILE_BYTES:,})\n"
        text = said.encode() + text
    return RunFile(file.name, text or b"(the job printed nothing)\n")


def whole(*files: Path) -> Iterator[RunFile]:
    """The existing files; a sentence replaces a file beyond the limit."""
    for file in files:
        size = file.stat().st_size if file.exists() else 0
        if size > WHOLE_FILE_BYTES:
            said = f"{file} has {size:,} bytes, and a file here at most {WHOLE_FILE_BYTES:,}.\n"
            yield RunFile(f"{file.name}.txt", said.encode())
        elif size:
            yield RunFile(file.name, file.read_bytes())


def _clean(call: StageCall, made: Artifact) -> Iterator[RunFile]:
    read = made.facts["read"]
    counts = made.facts["rejected_by"]
    about = {rule.name: " ".join((type(rule).__doc__ or "").split()) for rule in call.arguments["filters"].rules}
    rows = [(name, count, f"{count / read:.2%}", about.get(name, "")) for name, count in counts.items()]
    yield table("filters.json", ("filter", "rejected", f"of {read:,} pairs", "what it removes"), rows)


def _rejected(call: StageCall, made: Artifact) -> Iterator[RunFile]:
    from tasks.cleaning.rejections import filter_evidence, first_rejected

    rules = {rule.name: rule for rule in call.arguments["filters"].rules}
    samples = []
    for name, pairs in first_rejected(made.path() / "rejected.parquet", SAMPLES).items():
        for pair in pairs:
            evidence = filter_evidence(rules[name], pl.DataFrame([pair]).select(SIDES)) if name in rules else ("", "")
            samples.append((name, pair["pair_id"], *evidence, *(pair[side] for side in SIDES)))
    yield table("rejected.json", ("filter", "pair_id", "found", "allowed", *SIDES), samples)


def _shard(call: StageCall, made: Artifact) -> Iterator[RunFile]:
    from tasks.evaluation import plots

    shards = Shards(made.path())
    source, target = length_counts(shards)
    yield RunFile("lengths.png", plots.lengths({call.item: (source, target)}, plots.LIGHT))
    counts = enumerate(zip_longest(source.tolist(), target.tolist(), fillvalue=0))
    rows = [(pieces, *pair) for pieces, pair in counts if any(pair)]
    yield table("lengths.json", ("pieces in a sentence", "source sentences", "target sentences"), rows)


def _train(call: StageCall, made: Artifact) -> Iterator[RunFile]:  # noqa: ARG001
    from tasks.evaluation import plots

    folder = made.path()
    yield RunFile("curves.png", plots.curves(training_curves(folder / "metrics.jsonl"), plots.LIGHT))
    yield from whole(folder / "metrics.jsonl", folder / "job.json")
    if (folder / "job.log").exists():
        yield log_end(folder / "job.log")


def _average(call: StageCall, made: Artifact) -> Iterator[RunFile]:
    training = call.arguments["run"].path()
    first, last = (made.facts[f"{end}_update"] for end in ("first", "last"))
    kept = {int(folder.name) for folder in (training / "checkpoints").glob("*") if folder.name.isdigit()}
    dev = {int(row["done"]): row.get(DEV_PERPLEXITY, "") for row in metric_rows(training / "metrics.jsonl")}
    updates = sorted(kept | {first, last})
    rows = [(each, "yes" if first <= each <= last else "no", dev.get(each, "")) for each in updates]
    yield table("checkpoints.json", ("update", "in the average", "dev perplexity"), rows)


def _translate(call: StageCall, made: Artifact) -> Iterator[RunFile]:
    pairs = pl.read_parquet(call.arguments["prepared"].path() / "pairs.parquet")
    found = pl.read_parquet(made.path() / "hypotheses.parquet", columns=["pair_id", "hypothesis"])
    rows = pairs.join(found, on="pair_id", how="left", maintain_order="left")
    columns = ("pair_id", "source", "hypothesis", "target")
    yield table("translations.json", (*columns[:3], "reference"), rows.select(columns).rows())


def _score(call: StageCall, made: Artifact) -> Iterator[RunFile]:  # noqa: ARG001
    scores: Mapping[str, Mapping[str, Any]] = json.loads((made.path() / "card.json").read_bytes())["scores"]
    fields = ("score", "low", "high", "protocol", "signature")
    rows = [(name, *(measured.get(field, "") for field in fields)) for name, measured in scores.items()]
    yield table("scores.json", ("measure", *fields), rows)


def _report(call: StageCall, made: Artifact) -> Iterator[RunFile]:  # noqa: ARG001
    folder = made.path()
    yield from whole(folder / "report.html", folder / TOKENS_FILE, *sorted(folder.glob("*.png")))


WHOLE = {"learn_bpe": (SOURCE_FILE, TARGET_FILE), "gap": ("gap.html", "gap.json"), "score": ("card.json",)}
"""Files of artifacts that are shown whole."""
QUOTES = {"clean": _rejected, "translate": _translate, "report": _report}
"""Files with sentences of the text."""
FILES: Mapping[str, Callable[[StageCall, Artifact], Iterator[RunFile]]] = {
    "clean": _clean,
    "shard": _shard,
    "train": _train,
    "average": _average,
    "score": _score,
}
