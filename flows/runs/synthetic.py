"""Synthetic training pairs of a run: back-translation and distillation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from model.config import Decoding, Model, Training
from model.config.keying import require
from model.config.special_pieces import SPECIAL_TOKENS
from tasks.corpus.catalogue import Corpus, Part, Text
from tasks.stages.mix import PREFIX

REVERSE = "reverse"
MONOLINGUAL = "monolingual"
"""Items of the stages of the reverse model (``reverse/dev``), and of ``clean`` of the monolingual text."""
TEACHER = "teacher"
"""Items of the stages of the teachers: ``teacher/train``, ``teacher/seed-1``."""
COUNTED_AS = {REVERSE: "translate_text", TEACHER: "translate_text"}
"""Stages of the reverse model and the teachers are ordered as ``translate_text``, before ``mix``."""


@dataclass(frozen=True)
class BackTranslation:
    """Back-translation (Sennrich et al., 2016): adds translated monolingual text to the training pairs.

    A reverse model translates text of the target language into the source language. It is the run with swapped
    languages; its stages belong to the run. The vocabulary is learned only from the pairs of the corpus.
    """

    monolingual: Corpus
    """Text of the target language, made by ``monolingual``."""
    lines: int = 0
    """The largest number of lines to translate, chosen at random; 0: all."""
    tag: str = "<BT>"
    """The piece that begins synthetic sources (Caswell et al., 2019); it is added to the vocabulary. Empty: no tag."""
    decoding: Decoding = Decoding()  # noqa: RUF009 - frozen
    """Search settings of the reverse model."""
    seed: int = 1
    """Seed of the reverse model's training; independent of ``training.seed``."""
    updates: int = 0
    """Updates of the reverse model's training; 0: as long as the run's."""

    def __post_init__(self) -> None:
        text = self.monolingual
        one = text.source_language == text.target_language and all(p.source == p.target for p in text.parts)
        require(one, "synthetic.monolingual", text.name, "text of one language (flows.runs.synthetic.monolingual)")
        require(self.lines >= 0, "synthetic.lines", self.lines, "0 (all) or a whole number above")
        seeds = self.decoding.ensemble
        require(not seeds, "synthetic.decoding.ensemble", seeds, "empty: one model translates back")
        own = re.fullmatch(r"(<[A-Za-z0-9_-]{1,20}>)?", self.tag) is not None and self.tag not in SPECIAL_TOKENS
        allowed = f"letters, digits, '_', '-' in angle brackets, none of {', '.join(SPECIAL_TOKENS)}, or empty"
        require(own, "synthetic.tag", self.tag, allowed)
        require(0 <= self.seed < 2**31, "synthetic.seed", self.seed, "a whole number from 0 to 2,147,483,647")

    def check(self, corpus: Corpus, start: str) -> None:
        """Raise ValueError unless the settings fit the run's corpus and ``training.start``."""
        text = self.monolingual
        language = text.target_language
        allowed = f"text of the target language, {corpus.target_language}"
        require(language == corpus.target_language, "synthetic.monolingual", language, allowed)
        names = {part.name for part in corpus.parts} & {PREFIX + part.name for part in text.parts}
        require(not names, "corpus.parts", names, f"names that do not begin with {PREFIX}")
        allowed = "empty where training.start is given: the vocabulary of that version has no such piece"
        require(not (start and self.tag), "synthetic.tag", self.tag, allowed)


@dataclass(frozen=True)
class Distillation:
    """Sequence-level distillation (Kim and Rush, 2016): trains the run's model on a teacher's translations.

    The student, the run's model, learns from translations of the training sources by a larger teacher, not from the
    references. Of ``n_best`` translations of a source, it gets the one with the highest sentence BLEU. The teachers use
    the run's pairs, vocabulary and ``training``, except ``start`` and ``updates``; their stages belong to the run.
    """

    teacher: Model
    seeds: tuple[int, ...] = (1,)
    """Seeds of the teachers' trainings; several translate as an ensemble. ``training.seed`` is the student's."""
    n_best: int = 4
    """Translations of a source to choose from; 1: the best by the search's score."""
    references: bool = False
    """Whether to train the student on the references too: two pairs per source (Gordon and Duh, 2019)."""
    decoding: Decoding = Decoding()  # noqa: RUF009 - frozen
    """Search settings of the teachers."""
    updates: int = 0
    """Updates of a teacher's training; 0: as long as the run's."""

    def __post_init__(self) -> None:
        seeds = self.seeds
        allowed = "one or more different whole numbers from 0 to 2,147,483,647, as in 1,2,3"
        different = 0 < len(set(seeds)) == len(seeds) and all(0 <= seed < 2**31 for seed in seeds)
        require(different, "synthetic.seeds", seeds, allowed)
        most = self.decoding.most_hypotheses
        allowed = f"1 to {most}, the most that can finish with synthetic.decoding.beam {self.decoding.beam}"
        require(1 <= self.n_best <= most, "synthetic.n_best", self.n_best, allowed)
        allowed = "empty: synthetic.seeds names the teachers"
        require(not self.decoding.ensemble, "synthetic.decoding.ensemble", self.decoding.ensemble, allowed)


def further_training(training: Training, seed: int, updates: int) -> Training:
    """Return the training of a further model: with ``seed``, random initial weights, and ``updates`` unless it is 0."""
    of_seed = replace(training, seed=seed, start="")
    return replace(of_seed, updates=updates, epochs=0) if updates else of_seed


def monolingual(name: str, language: str, texts: Mapping[str, Text]) -> Corpus:
    """Make a corpus of text of one language: each named part has the same text on both sides."""
    return Corpus(name, language, language, tuple(Part(part, text, text) for part, text in texts.items()))
