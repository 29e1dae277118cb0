"""The form that existing work must have to stand for an artifact: its files, and what the next stages read in them.

A check gets the copied files and returns the facts that can be measured from them. It raises BadData with one sentence
that names what is missing or wrong.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from flows.runs import Run
from flows.runs.initial_weights import shape_difference
from infra.errors import BadConfiguration, BadData, fault_for
from model.data.bpe import SOURCE_FILE, TARGET_FILE, TokenizerPair, with_plain_quotes
from model.errors import JobError
from tasks.cleaning.partitions import KEPT, REJECTED
from tasks.corpus.catalogue import files
from tasks.corpus.partial_file import PartialFile
from tasks.engine.stage import Facts
from tasks.stages.learn_bpe import Vocabulary, untrained_tokenizer

TOKENIZER_PARTS = ("normalizer", "pre_tokenizer", "decoder")


@dataclass(frozen=True)
class AdoptableForm:
    """The names of an artifact's files, and the check of a folder with exactly these files."""

    files: tuple[str, ...]
    check: Callable[[Path], Facts]


def adoptable_form(run: Run, stage: str, item: str, vocabulary: Path | None) -> AdoptableForm:
    """The form of the artifact that ``run`` needs of ``stage``.

    ``vocabulary`` is the run's vocabulary where it exists; weights must fit its size. Raises BadConfiguration for a
    stage that cannot be adopted, and for an item that the run does not have.
    """
    items = {file.path: file for file in files(run.corpus, run.sets)} if stage == "download" else {"": None}
    if stage not in ADOPTABLE:
        raise BadConfiguration(f"stage is {stage!r}, allowed is one that can be adopted: {', '.join(ADOPTABLE)}")
    if item not in items:
        allowed = ", ".join(items) if stage == "download" else "none, as the stage has no items"
        raise BadConfiguration(f"--item is {item!r}, allowed is {allowed}")
    if stage == "clean":
        return AdoptableForm(("pairs.parquet", "rejected.parquet"), _check_pairs)
    if stage == "learn_bpe":
        names = (SOURCE_FILE,) if run.vocabulary.joint else (SOURCE_FILE, TARGET_FILE)
        return AdoptableForm(names, lambda folder: _check_tokenizers(folder, run))
    if stage == "average":
        return AdoptableForm(
            ("model.safetensors", "model.json"), lambda folder: _check_weights(folder, run, vocabulary)
        )
    file = items[item]
    assert file
    return AdoptableForm((file.name,), lambda folder: _check_download(PartialFile(folder / file.name, file)))


ADOPTABLE = ("download", "clean", "learn_bpe", "average")


def _check_pairs(folder: Path) -> Facts:
    for name, columns in (("pairs.parquet", KEPT), ("rejected.parquet", REJECTED)):
        _check_columns(folder / name, columns)
    pairs, rejected = (
        pq.ParquetFile(folder / name).metadata.num_rows for name in ("pairs.parquet", "rejected.parquet")
    )
    if not pairs:
        raise BadData("pairs.parquet holds no pair, allowed is at least one")
    counts = pl.scan_parquet(folder / "rejected.parquet").group_by("filter").len().sort("filter").collect()
    by_rule = dict(counts.iter_rows())
    return {"read": pairs + rejected, "pairs": pairs, "rejected": rejected, "rejected_by": by_rule}


def _check_columns(path: Path, columns: tuple[str, ...]) -> None:
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise BadData(f"{path.name} is not a readable Parquet file: {error}") from error
    for name in columns:
        kind = schema.field(name).type if name in schema.names else None
        if kind is None or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            has = "no such column" if kind is None else f"{kind} there"
            raise BadData(
                f"{path.name} needs the text columns {', '.join(columns)}, but {name} is missing: it has {has}"
            )


def _check_tokenizers(folder: Path, run: Run) -> Facts:
    pair = _loaded(lambda: TokenizerPair.load(folder))
    sides = {SOURCE_FILE: pair.source} if pair.joint else {SOURCE_FILE: pair.source, TARGET_FILE: pair.target}
    for name, tokenizer in sides.items():
        untrained = untrained_tokenizer(run.vocabulary)
        if name == SOURCE_FILE and run.filters.normalise.quotes:
            untrained = with_plain_quotes(untrained)
        expected = json.loads(untrained.to_str())
        size, form = tokenizer.get_vocab_size(), json.loads(tokenizer.to_str())
        if not _fits(size, run.vocabulary):
            most = "at most " * (run.vocabulary.tokens == "words")
            raise BadData(f"{name} has {size} pieces, allowed is {most}vocabulary.size, which is {run.vocabulary.size}")
        for part in TOKENIZER_PARTS:
            if form[part] != expected[part]:
                raise BadData(f"{name} has the {part} {_short(form[part])}, allowed is {_short(expected[part])}")
        if form["model"]["type"] != expected["model"]["type"]:
            raise BadData(f"{name} is a {form['model']['type']} tokenizer, allowed is {expected['model']['type']}")
    return {"size": pair.source_size, "target_size": pair.target_size}


def _fits(size: int, vocabulary: Vocabulary) -> bool:
    """Whether a vocabulary of this size can be the run's; how many words there are, the corpus decides."""
    return size <= vocabulary.size if vocabulary.tokens == "words" else size == vocabulary.size


def _check_weights(folder: Path, run: Run, vocabulary: Path | None) -> Facts:
    from model.network.weights import load_model  # loads torch

    network = _loaded(lambda: load_model(folder))
    if difference := shape_difference(run.model, "model.json", network.config):
        raise BadData(f"model.json is of another model than the run's: {difference}")
    found, sizes = (network.source_size, network.target_size), (run.vocabulary.size, run.vocabulary.size)
    fits = all(_fits(size, run.vocabulary) for size in found)
    if vocabulary:
        pair = TokenizerPair.load(vocabulary)
        sizes = pair.source_size, pair.target_size
        fits = found == sizes
    if not fits:
        raise BadData(f"model.json has vocabularies of {found} pieces, allowed is the run's: {sizes}")
    for name, tensor in network.state_dict().items():
        if not bool(tensor.isfinite().all()):
            raise BadData(f"model.safetensors: {name} holds values that are not finite")
    return {"parameters": sum(parameter.numel() for parameter in network.parameters())}


def _check_download(copied: PartialFile) -> Facts:
    try:
        if not copied.is_complete:
            expected = f"sha256 {copied.file.sha256}" if copied.file.sha256 else f"md5 {copied.file.md5}"
            raise BadData(f"{copied.file.path} has {copied.difference}, allowed is {expected}")
        return copied.facts("adopted")
    finally:
        copied.close()


def _loaded(load: Callable[[], Any]) -> Any:
    """What ``load`` returns; a JobError becomes the Fault of its reason, and names no temporary folder."""
    try:
        return load()
    except JobError as error:
        raise fault_for(error.reason, f"{error}") from error


def _short(form: Mapping[str, Any] | None) -> str:
    text = json.dumps(form)
    return text if len(text) <= 80 else f"{text[:77]}..."
