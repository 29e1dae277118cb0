"""Metrics of translations: sacreBLEU's, each with a name and a protocol, with intervals and p-values by the bootstrap.

A metric keeps sufficient statistics per sentence. Their sum gives the corpus score, resampled sums give the interval
and the p-value (Koehn 2004), and one row gives the sentence score. ``tasks.stages.score`` reads and writes the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeAlias

from model import metric_names
from model.config.normalise import DOUBLE_QUOTES, SINGLE_QUOTES
from model.data.word_splitting import moses_tokens
from tasks.lazy_libraries import NDArray, np

Counts: TypeAlias = "NDArray[np.float64]"
RESAMPLES = 1_000
SEED = 12_345
CONFIDENCE_LEVEL = 0.95
TOKENISERS = dict.fromkeys(("zh", "zho", "cmn", "yue"), "zh") | dict.fromkeys(
    ("ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod", "dz", "dzo"), "char"
)
"""sacreBLEU's tokeniser for each language that writes no spaces between words; 13a, for all others, would not split."""
WITHOUT_SPACES = (metric_names.BLEU, metric_names.BLEU_LC, metric_names.CHRF)
"""The metrics that need no spaces between words."""
COMPOUND = re.compile(r"(\S)-(\S)")
"""``rich-text``, which perl's ``s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`` makes ``rich ##AT##-##AT## text``."""
PLAIN_QUOTES = str.maketrans(dict.fromkeys(DOUBLE_QUOTES, '"') | dict.fromkeys(SINGLE_QUOTES, "'"))
"""Maps typographic quotation marks and the apostrophe to ASCII."""


@dataclass(frozen=True)
class ScoreMetric:
    """A sacreBLEU metric with a name and a protocol.

    ``tweak`` changes each reference, then ``prepare`` preprocesses each line of both sides.
    """

    name: str
    protocol: str
    metric: Any
    prepare: Callable[[str], str] = str
    prepared_by: str = ""
    tweak: Callable[[str], str] = str

    def count(self, hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
        """sacreBLEU's sufficient statistics for each sentence: (sentences, statistics)."""
        written = [self.prepare(line) for line in hypotheses]
        expected = [self.prepare(self.tweak(line)) for line in references]
        return np.array(self.metric._extract_corpus_statistics(written, [expected]), dtype=np.float64)

    @property
    def signature(self) -> str:
        """Everything needed to reproduce the score; complete after the first ``count``."""
        return "|".join(filter(None, [self.metric.get_signature().format(), self.prepared_by]))


def base_language(code: str) -> str:
    """The language of a code with a country or a script: ``de`` of ``de-AT``, ``zh`` of ``zh_Hans``."""
    return code.lower().replace("_", "-").partition("-")[0]


def has_spaces(language: str) -> bool:
    """Whether the language (``de``, ``zh-CN``) writes spaces between words."""
    return base_language(language) not in TOKENISERS


def score_metrics(language: str) -> list[ScoreMetric]:
    """All metrics of the card for text in ``language`` (``de``, "" if unknown); the first is the headline.

    Metrics that split text at spaces are left out for a language without them, where a whole line is one word.
    """
    from sacrebleu.metrics import BLEU, CHRF, TER  # takes 0.2 s, which a fully cached run should not pay

    language = base_language(language)
    by = TOKENISERS.get(language, "13a")
    without_case = BLEU(tokenize=by, lowercase=True, force=True)
    found = [
        ScoreMetric(metric_names.BLEU, f"{by}, cased, detokenised", BLEU(tokenize=by)),
        ScoreMetric(metric_names.BLEU_LC, f"{by}, lower-cased, detokenised", without_case),
        ScoreMetric(metric_names.BLEU_INTL, "international, cased, detokenised", BLEU(tokenize="intl", force=True)),
        ScoreMetric(
            metric_names.BLEU_INTL_LC, "international, lower-cased", BLEU(tokenize="intl", lowercase=True, force=True)
        ),
        *(paper_bleu() if language == "de" else ()),
        *([moses_bleu(language)] if language else ()),
        ScoreMetric(metric_names.CHRF, "characters 1 to 6, cased", CHRF()),
        ScoreMetric(metric_names.TER, "edits and shifts per word, lower-cased; lower is better", TER()),
    ]
    return found if has_spaces(language) else [each for each in found if each.name in WITHOUT_SPACES]


def score_metric(name: str, language: str) -> ScoreMetric:
    return next(each for each in score_metrics(language) if each.name == name)


def paper_bleu() -> tuple[ScoreMetric, ScoreMetric]:
    """BLEU of English-German as the paper's authors computed it, the protocols ``paper`` and ``paper_untweaked``.

    Both follow tensor2tensor's get_ende_bleu.sh: ``multi-bleu.perl`` over tokens of Moses' ``tokenizer.perl``, with
    compound hyphens split as ``##AT##-##AT##`` in hypotheses and references. ``paper`` first changes the typographic
    quotes of the references, and only of these, to plain ones, as the authors did by hand (docs/paper.md says how many
    lines of which set that changes). Both count more and easier matches than 13a: compare only within one protocol.
    The paper's English-French figures are over 13a tokens without a hyphen split, the metric ``bleu``.
    """
    from sacrebleu.metrics import BLEU
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang="de")

    def tokens(line: str) -> str:
        # Escaping XML's characters, which Moses does by default, changes no match.
        return COMPOUND.sub(r"\1 ##AT##-##AT## \2", moses.tokenize(line, return_str=True, escape=False))

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    about = "Moses tokens, hyphens of compounds split, cased, unsmoothed"
    made_by = f"moses:sacremoses-{version('sacremoses')}-de|hyphens:split"
    tweaked = f"paper: {about}, typographic quotes of the references made plain"
    return (
        ScoreMetric(
            metric_names.BLEU_PAPER, tweaked, metric, tokens, f"{made_by}|references:plain-quotes", plain_quotes
        ),
        ScoreMetric(metric_names.BLEU_PAPER_UNTWEAKED, f"paper_untweaked: {about}", metric, tokens, made_by),
    )


def moses_bleu(language: str) -> ScoreMetric:
    """BLEU of lower-cased Moses tokens, as publications on Multi30k report it (``WordSplitting``), unsmoothed.

    Hypotheses and references are tokenised in the same way, so that runs with any vocabulary can be compared.
    """
    from sacrebleu.metrics import BLEU

    return ScoreMetric(
        metric_names.BLEU_MOSES_LC,
        "lower-cased Moses tokens, punctuation normalised, unsmoothed",
        BLEU(tokenize="none", smooth_method="none", force=True),
        moses_tokens(language, lowercase=True),
        f"moses:sacremoses-{version('sacremoses')}-{language}|punctuation:normalised|lower-cased",
    )


def plain_quotes(line: str) -> str:
    """The line with plain quotation marks in place of typographic ones: ``„ja“`` to ``"ja"``."""
    return line.translate(PLAIN_QUOTES)


def total(metric: Any, counts: Counts) -> float:
    """The corpus score of these sentences."""
    return float(metric._compute_score_from_stats(counts.sum(axis=0).astype(np.int64).tolist()).score)


def resample(counts: Counts) -> Counts:
    """Summed statistics of RESAMPLES corpora drawn with replacement: (resamples, statistics). Deterministic."""
    sentences = len(counts)
    rng = np.random.default_rng(SEED)
    return np.stack([counts[rng.integers(0, sentences, sentences)].sum(axis=0) for _ in range(RESAMPLES)])


def sentence_scores(metric: Any, counts: Counts) -> Counts:
    """The score of each row of counts, a sentence or a resampled corpus."""
    return np.array([total(metric, row[None]) for row in counts])


@dataclass(frozen=True)
class Measured:
    """A score or a difference, and its values on resampled corpora: the same sentences for all systems of a set."""

    score: float
    resampled: Counts

    def __sub__(self, other: Measured) -> Measured:
        return Measured(self.score - other.score, self.resampled - other.resampled)

    @property
    def numbers(self) -> dict[str, float]:
        """``score``, and its interval from ``low`` to ``high``."""
        low, high = np.quantile(self.resampled, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
        return {"score": self.score, "low": float(low), "high": float(high)}

    def entry(self, protocol: str, signature: str) -> dict[str, Any]:
        """The entry of a score card."""
        return rounded(self.numbers) | {"protocol": protocol, "signature": signature}


def measured(metric: Any, counts: Counts) -> Measured:
    return Measured(total(metric, counts), sentence_scores(metric, resample(counts)))


def measured_mean(scores: Counts) -> Measured:
    return Measured(float(scores.mean()), resample(scores[:, None])[:, 0] / len(scores))


def rounded(numbers: Mapping[str, float]) -> dict[str, float]:
    """Round numbers to four decimals, as in score cards."""
    return {name: round(value, 4) for name, value in numbers.items()}


def paired_p_value(difference: float, resampled: Sequence[float] | Counts, sentences: int) -> float:
    """The probability that equal systems differ by at least ``difference``, in either direction.

    ``resampled`` are the differences of both systems on resampled corpora of so many ``sentences``. Their distances
    from their mean show the effect of chance alone. sacreBLEU's ``--paired-bs`` centres the absolute differences
    instead. If all differences have the same sign, it counts only one tail, and returns about half of this.
    """
    gaps = np.asarray(resampled)
    beyond = int((np.abs(gaps - gaps.mean()) >= abs(difference)).sum())
    # If chance decides each sentence, all of them favour one system with this probability.
    least = 2.0 ** (1 - sentences)
    return max((beyond + 1) / (len(gaps) + 1), least)
