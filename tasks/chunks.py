"""How often each chunk of text occurs: all that a BPE learner needs to know of a corpus.

Words are counted first, and each distinct word is cut into the tokenizer's chunks afterwards; a line of which
``tasks.words`` cannot say its words is cut whole. Memory grows with the distinct words alone.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from tasks.words import Splitter

MOST_ROWS = 8_000_000
"""Rows of counts that are kept before equal words are put together."""
TOGETHER = 10_000
"""Words that are cut into chunks in one call."""
SPACE = "Ġ"
"""A space, as byte-level chunks spell it; each word's first chunk begins so."""


def count_chunks(tokenizer: Tokenizer, batches: Iterable[pa.Array]) -> Counter[str]:
    """The chunks that the tokenizer's BPE works on, spelt in its alphabet, of all lines together."""
    splitter, chunks = Splitter(tokenizer), Counter[str]()
    counted = [pl.DataFrame(schema={"word": pl.String, "count": pl.Int64})]
    for lines in batches:
        whole, words, _ = splitter.split(lines)
        found = pc.value_counts(words)
        counted.append(pl.DataFrame({"word": found.field("values"), "count": found.field("counts")}))
        if sum(map(len, counted)) > MOST_ROWS:
            counted = [together(counted)]
        for line in lines.filter(pa.array(whole)).to_pylist():
            chunks.update(_chunks(tokenizer, line))
    distinct = together(counted)
    plain = pl.col("word").str.contains(r"^[A-Za-z]+$")  # such a word is one chunk, if the normaliser leaves it alone
    if _chunks(tokenizer, "Word") == [f"{SPACE}Word"]:
        for word, count in distinct.filter(plain).iter_rows():
            chunks[SPACE + word] += count
        distinct = distinct.filter(~plain)
    for some in distinct.iter_slices(TOGETHER):
        found = _chunks(tokenizer, " ".join(some["word"]))
        # A word has a space before it and none within.
        number = np.cumsum([chunk.startswith(SPACE) for chunk in found]) - 1
        for chunk, count in zip(found, some["count"].to_numpy()[number].tolist(), strict=True):
            chunks[chunk] += count
    return chunks


def together(counted: list[pl.DataFrame]) -> pl.DataFrame:
    """The sums of the same words' counts."""
    return pl.concat(counted).group_by("word").agg(pl.col("count").sum()).sort("word")


def _chunks(tokenizer: Tokenizer, text: str) -> list[str]:
    return [chunk for chunk, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))]
