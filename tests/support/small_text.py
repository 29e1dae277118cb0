"""Small texts as readers and filters take them."""

import io
import tarfile
from pathlib import Path

import polars as pl
import pyarrow as pa
from tokenizers import Tokenizer

from tasks.bpe.word_counts import count_chunks
from tasks.cleaning.filters import Filter
from tasks.corpus.reading import read_lines
from tasks.stages.learn_bpe import Vocabulary, train_from_counts, untrained_tokenizer


def all_lines(path: Path, member: str = "", column: str = "") -> list[str]:
    """The lines of a file, of a member of an archive, or of a column."""
    return [line for block in read_lines(path, member, column) for line in block]


def train_tokenizer(batches: list[pa.Array], vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer that ``learn_bpe`` learns from arrays of lines."""
    return train_from_counts([count_chunks(untrained_tokenizer(vocabulary), batches)], vocabulary)


def archive(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    """A tar archive with these plain files."""
    with tarfile.open(path, mode) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def kept(rule: Filter, pairs: list[tuple[str, str]]) -> list[bool]:
    """Whether the rule keeps each pair."""
    frame = pl.DataFrame(pairs, schema={"source": pl.String, "target": pl.String}, orient="row")
    return frame.select(rule.keep()).to_series().to_list()
