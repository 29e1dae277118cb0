"""Scores the hypotheses of one set: each number comes with its protocol and signature, never as a bare "BLEU".

    card.json    sentences.parquet (pair_id, source, reference, hypothesis, bleu, chrf; in the set's order)

The metrics are in ``tasks.evaluation.translation_metrics``; perplexity comes from the log-probabilities stored with
the hypotheses. Hypotheses of another system (``tasks.stages.receive``) have none.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.errors import BadData
from infra.store.store import Artifact
from model import metric_names
from tasks.engine.stage import Facts, progress, stage
from tasks.evaluation.score_gap import Condition, measure
from tasks.evaluation.sentence_bleu import SENTENCE_MEANS, sentence_means
from tasks.evaluation.translation_metrics import (
    CONFIDENCE_LEVEL,
    RESAMPLES,
    SEED,
    WITHOUT_SPACES,
    Counts,
    has_spaces,
    measured,
    rounded,
    score_metrics,
    sentence_scores,
    total,
)
from tasks.lazy_libraries import np, pl

HYPOTHESES = ("pair_id", "hypothesis", "reference_log_probability", "reference_pieces")
"""The columns that are read; hypotheses of another system lack the last two."""
SOURCE_WORDS = (0, 10, 20, 30, 40)
"""Lower ends of the buckets of source length, in words; the last bucket is open."""


def perplexities(log_probability: float, pieces: int, words: int) -> dict[str, float]:
    """Perplexity of the references per piece (§6.2, footnote to Table 3) and per word, both including end of sentence.

    Unsmoothed: ``log_probability`` is the natural log of the references' probability.
    """
    if not math.isfinite(log_probability):
        raise BadData(f"the references' log-probability is {log_probability}, allowed is a finite number")
    return {
        metric_names.PERPLEXITY: math.exp(min(-log_probability / max(pieces, 1), 700)),
        metric_names.PERPLEXITY_WORD: math.exp(min(-log_probability / max(words, 1), 700)),
    }


def join_hypotheses(pairs: pl.DataFrame, hypotheses: pl.DataFrame, name: str) -> pl.DataFrame:
    """The set's pairs with their hypotheses, in the set's order. Raises BadData unless each pair has exactly one."""
    if len(pairs) != len(hypotheses):
        raise BadData(f"set {name} has {len(pairs)} pairs, but there are {len(hypotheses)} hypotheses")
    table = pairs.join(hypotheses.unique("pair_id"), on="pair_id", how="left", maintain_order="left")
    missing = table.filter(pl.col("hypothesis").is_null())["pair_id"]
    if len(missing):
        raise BadData(
            f"of {len(pairs)} pairs of set {name} only {len(pairs) - len(missing)} have a hypothesis; "
            f"{missing[0]} has none"
        )
    return table


def lines_digest(lines: Sequence[str]) -> str:
    """sha256 of lines; scores whose references have equal digests are comparable."""
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def by_source_length(metric: Any, counts: Counts, sources: Sequence[str]) -> list[dict[str, Any]]:
    """The metric by bucket of source length in words, without empty buckets; nothing for text without spaces."""
    words = np.array([len(source.split()) for source in sources])
    buckets: list[dict[str, Any]] = []
    if np.median(words) <= 1:
        return buckets
    for start, end in zip(SOURCE_WORDS, (*SOURCE_WORDS[1:], math.inf), strict=True):
        inside = (words > start) & (words <= end) if start else words <= end
        if inside.any():
            label = f"{start + 1}–{end}" if end < math.inf else f"over {start}"
            score = round(total(metric, counts[inside]), 4)
            buckets.append({"source_words": label, "sentences": int(inside.sum()), "score": score})
    return buckets


def score_card(table: pl.DataFrame, name: str, language: str) -> tuple[dict[str, Any], pl.DataFrame]:
    """The score card, and the table with columns of sentence BLEU and chrF; sources may be missing."""
    from sacrebleu.metrics import BLEU

    references, hypotheses = (table[column].to_list() for column in ("reference", "hypothesis"))
    scores: dict[str, Any] = {}
    columns: dict[str, list[float]] = {}
    buckets: list[dict[str, Any]] = []
    kinds = score_metrics(language)
    for done, kind in enumerate(kinds):
        progress(done, len(kinds), kind.name)
        counts = kind.count(hypotheses, references)
        scores[kind.name] = measured(kind.metric, counts).entry(kind.protocol, kind.signature)
        if kind.name == metric_names.BLEU:
            one = BLEU(effective_order=True, force=True)
            columns[metric_names.BLEU] = sentence_scores(one, counts).tolist()
            buckets = by_source_length(kind.metric, counts, table["source"].to_list()) if "source" in table else []
            scores[metric_names.BLEU]["length_ratio"] = round(float(counts[:, 0].sum() / max(counts[:, 1].sum(), 1)), 4)
        if kind.name == metric_names.CHRF:
            columns[metric_names.CHRF] = sentence_scores(kind.metric, counts).tolist()
    scores |= sentence_means(hypotheses, references)
    words = sum(len(reference.split()) + 1 for reference in references)
    card = {
        "set": name,
        "sentences": len(table),
        "references_sha256": lines_digest(references),
        "interval": f"{CONFIDENCE_LEVEL:.0%}, percentile bootstrap over sentences, {RESAMPLES} resamples, seed {SEED}",
        "scores": scores,
        "bleu_by_source_length": buckets,
    }
    if "reference_pieces" in table:
        pieces = int(table["reference_pieces"].sum())
        found = perplexities(float(table["reference_log_probability"].sum()), pieces, words)
        if not has_spaces(language):
            found.pop(metric_names.PERPLEXITY_WORD)
        card |= rounded(found) | {"reference_pieces": pieces}
    card["reference_words"] = words
    return card, table.with_columns(pl.Series(n, v, pl.Float64) for n, v in columns.items())


def losses(clean: pl.DataFrame, noised: pl.DataFrame, language: str) -> dict[str, dict[str, float]]:
    """The loss by noise of each metric of ``WITHOUT_SPACES``, with its interval; both tables are resampled alike."""
    found = {}
    for name in WITHOUT_SPACES:
        before, after = (measure(Condition.of(each, name), language) for each in (clean, noised))
        numbers = rounded((before - after).numbers)
        found[name] = {"loss": numbers.pop("score"), **numbers}
    return found


def score_facts(card: Mapping[str, Any]) -> Facts:
    """The facts of the stage: the scores of the card except means of sentences, the headline with its interval."""
    scores = {name: score for name, score in card["scores"].items() if name not in SENTENCE_MEANS}
    return {
        metric_names.BLEU: scores[metric_names.BLEU]["score"],
        "bleu_low": scores[metric_names.BLEU]["low"],
        "bleu_high": scores[metric_names.BLEU]["high"],
        **{f"{name}_loss": lost["loss"] for name, lost in card.get("losses", {}).items()},
        **{name: scores[name]["score"] for name in scores if name != metric_names.BLEU},
        **{name: card[name] for name in (metric_names.PERPLEXITY, metric_names.PERPLEXITY_WORD) if name in card},
        "sentences": card["sentences"],
        "signature": scores[metric_names.BLEU]["signature"],
        "protocols": "; ".join(f"{name}: {scores[name]['protocol']}" for name in scores),
        "references_sha256": card["references_sha256"],
    }


@stage(version=3)
def score(
    out: Path, hypotheses: Artifact, pairs: Artifact, set_name: str, language: str, clean_score: Artifact | None = None
) -> Facts:
    """Score the hypotheses of one set against its references, which are in ``language``.

    ``clean_score`` has the scores of the same lines without noise: the card then has the loss by noise.
    """
    references = pl.read_parquet(pairs.path() / "pairs.parquet", columns=["pair_id", "source", "target"])
    columns = pl.selectors.by_name(*HYPOTHESES, require_all=False)
    translated = pl.scan_parquet(hypotheses.path() / "hypotheses.parquet").select(columns).collect()
    card, table = score_card(
        join_hypotheses(references.rename({"target": "reference"}), translated, set_name), set_name, language
    )
    changed = {name: hypotheses.facts[name] for name in ("source_input",) if name in hypotheses.facts}
    card |= changed
    if clean_score:
        clean = pl.read_parquet(clean_score.path() / "sentences.parquet")
        card["clean_set"] = json.loads((clean_score.path() / "card.json").read_bytes())["set"]
        card["losses"] = losses(clean, table, language)
    (out / "card.json").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", "utf-8")
    table.select("pair_id", "source", "reference", "hypothesis", metric_names.BLEU, metric_names.CHRF).write_parquet(
        out / "sentences.parquet", compression="zstd"
    )
    return score_facts(card) | changed
