"""Selects for each training source the translation nearest to its reference, as training text of a student model.

    pairs.parquet    pair_id, corpus, source, target: the cleaned pairs in their order, the translation as the target;
                     with ``references`` the cleaned pairs themselves follow

A source without a finished translation has no such pair. Among equally near translations the search's first is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from infra.errors import BadData
from infra.store.store import Artifact
from model import metric_names
from tasks.cleaning.partitions import KEPT
from tasks.engine.stage import Facts, progress, stage
from tasks.evaluation.translation_metrics import TOKENISERS, base_language
from tasks.lazy_libraries import pa, pl, pq

BLOCKS = 100
"""Blocks of ``translate_text`` that are held in memory."""


def sentence_bleus(
    hypotheses: Sequence[str], reference: str, language: str = "", lowercase: bool = False
) -> list[float]:
    """The sentence BLEU of each hypothesis, 0 to 100: sacreBLEU's ``sentence_bleu`` for the language."""
    from sacrebleu.metrics import BLEU  # takes 0.2 s, which a fully cached run should not pay

    tokeniser = TOKENISERS.get(base_language(language), "13a")
    metric = BLEU(lowercase=lowercase, tokenize=tokeniser, effective_order=True)
    return [metric.sentence_score(hypothesis, [reference]).score for hypothesis in hypotheses]


def _translated(pairs: Path, blocks: list[Path]) -> Iterator[pl.DataFrame]:
    """The pairs with a column of their hypotheses, some blocks at a time; both files have the same order."""
    first = 0
    text = pl.scan_parquet(pairs)
    for number in range(0, len(blocks), BLOCKS):
        found = pl.read_parquet(blocks[number : number + BLOCKS])
        rows = text.slice(first, found.height).collect()
        if not rows["pair_id"].equals(found["pair_id"]):
            raise BadData(f"{blocks[number]} does not hold the translations of {pairs}; delete both and run again")
        first += found.height
        yield rows.with_columns(found["hypotheses"])


@stage(version=1)
def extract_best(
    out: Path,
    pairs: Artifact,
    translated: Artifact,
    references: bool = False,
    language: str = "",
    lowercase: bool = False,
) -> Facts:
    """Write a pair for each of ``pairs`` whose source has a translation in ``translated``.

    With ``references``, ``pairs`` themselves follow, with the same ``pair_id``. ``bleu`` is the mean sentence BLEU of
    the selected translations, ``bleu_of_first`` the mean for the translations that the search ranks first; without case
    if the teacher writes ``lowercase``, by the tokens of a ``language`` without spaces between words.
    Raises BadData if no source has a translation.
    """
    schema = pa.schema([(name, pa.large_string()) for name in KEPT])
    clean = pairs.path() / "pairs.parquet"
    blocks = sorted(translated.path().glob("*.parquet"))
    lines = translated.facts["lines"]
    read = 0
    taken: list[float] = []
    first: list[float] = []
    with pq.ParquetWriter(out / "pairs.parquet", schema, compression="zstd") as writer:
        for table in _translated(clean, blocks):
            read += table.height
            ended = table.filter(pl.col("hypotheses").list.len() > 0)
            targets = []
            for reference, hypotheses in ended.select("target", "hypotheses").iter_rows():
                scores = sentence_bleus(hypotheses, reference, language, lowercase)
                best = scores.index(max(scores))
                targets.append(hypotheses[best])
                taken.append(scores[best])
                first.append(scores[0])
            chosen = ended.with_columns(pl.Series("target", targets, pl.String)).select(KEPT)
            writer.write_table(chosen.to_arrow().cast(schema))
            progress(read, lines, "pairs")
        if not taken:
            raise BadData(f"none of {lines} training sources has a translation; train the teacher for longer")
        if references:
            for batch in pq.ParquetFile(clean).iter_batches(columns=list(KEPT)):
                writer.write_table(pa.Table.from_batches([batch]).cast(schema))
    return {
        "pairs": len(taken) + references * read,
        **({"references": read} if references else {}),
        "untranslated": lines - len(taken),
        metric_names.BLEU: round(fmean(taken), 4),
        "bleu_of_first": round(fmean(first), 4),
    }
