"""Texts are split into sentences and joined again; nothing is lost and nothing is cut silently."""

import itertools
import re
from dataclasses import replace
from math import fsum
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_models import translated
from small_text import train_tokenizer

from model.config import Decoding
from model.decoding.search_engine import SearchEngine
from model.decoding.sentence_splitting import splitter
from model.decoding.translation import Hypothesis, Search, SplitMode, best_combinations
from model.decoding.translator import Translator
from model.decoding.version_translator import VersionTranslator
from tasks.stages.learn_bpe import Vocabulary
from tests.model.decoding.test_translator import LINES, SHAPE, search_with_frequent_eos, translator_of  # noqa: F401

DECODING = Decoding(beam=3, alpha=2.0, max_extra=4)
PARAGRAPH = "Two dogs run. The men don't run over the green meadow. A dog, isn't it? 2014!"
TEXTS = st.text(
    st.one_of(st.sampled_from("AbZ .!?…\"'»)\u2028\u0085\u00a0。"), st.characters(codec="utf-8")), max_size=40
)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary")
    train_tokenizer([pa.array(LINES * 3)], Vocabulary(size=290, min_frequency=1)).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def translator(vocabulary: Path) -> Translator:
    return translator_of(vocabulary)


def by_full_stops(line: str) -> list[str]:
    return [part.strip() for part in re.split(r"(?<=[.!?])\s", line)]


def version_of(translator: Translator, trained_length: int = 1000) -> VersionTranslator:
    engine = SearchEngine(translator)
    return VersionTranslator("demo/1", translator, engine, by_full_stops, DECODING, trained_length)


@settings(max_examples=300)
@example(text="A\u2028. Then B\u0085. End", language="en")
@given(text=TEXTS, language=st.sampled_from(["en", "de", "fr", "DE-at", "zh", "xx", ""]))
def test_sentences_together_hold_all_that_is_no_white_space(text: str, language: str) -> None:
    sentences = splitter(language)(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


def test_a_language_has_its_own_abbreviations() -> None:
    german = "Am 3. Mai kam Dr. Ott nach Berlin. Er blieb dort."
    assert splitter("de-AT")(german) == splitter("DE")(german) == [german[:35].strip(), "Er blieb dort."]
    assert len(splitter("en")(german)) > 2
    assert splitter("en")("Dr. Smith ran 3.5 km. He won.") == ["Dr. Smith ran 3.5 km.", "He won."]


def test_a_paragraph_is_its_sentences_joined(translator: Translator) -> None:
    alone = translated(translator, by_full_stops(PARAGRAPH), DECODING)
    version = version_of(translator)
    found = version.translate(["A dog", PARAGRAPH, "", " \t"], Search(DECODING))
    assert [len(each.sources) for each in found] == [1, 4, 0, 0]
    [joined] = found[1].hypotheses
    assert joined.text == " ".join(each.text for each in alone if each.text)
    assert joined.pieces == tuple(piece for each in alone for piece in each.pieces)
    assert joined.length == sum(each.length for each in alone)
    assert joined.score == pytest.approx(fsum(each.score for each in alone), abs=1e-4)
    assert joined.finished == all(each.finished for each in alone)
    assert [each.hypotheses[0].text for each in found[2:]] == ["", ""]
    [never] = version.translate([PARAGRAPH], Search(DECODING, split="never"))
    assert never.hypotheses[0].pieces == translated(translator, [PARAGRAPH], DECODING)[0].pieces


def test_long_mode_splits_only_texts_longer_than_in_training(translator: Translator) -> None:
    pieces = len(translator.vocabulary.encode_source([PARAGRAPH])[0])
    for longest, sentences in ((pieces, 1), (pieces - 1, 4)):
        [found] = version_of(translator, longest).translate([PARAGRAPH], Search(DECODING, split="long"))
        assert len(found.sources) == sentences


@pytest.mark.parametrize("split", ["long", "always", "never"])
def test_a_sentence_that_is_too_long_is_refused_and_others_are_translated(vocabulary: Path, split: SplitMode) -> None:
    short = translator_of(vocabulary, replace(SHAPE, positions="learned", max_positions=20))
    tail = "7" + " 7" * 30
    texts = ["A dog", f"Two dogs run. {tail}", "A dog"]
    first, second, third = version_of(short, 19).translate(texts, Search(DECODING, split=split))
    assert first.hypotheses == third.hypotheses != ()
    assert second.hypotheses == ()
    assert second.longest == len(short.vocabulary.encode_source([texts[1] if split == "never" else tail])[0])
    assert f"{second.longest} pieces" in second.refusal


SENTENCES = st.lists(
    st.lists(st.tuples(st.integers(-9, 0), st.booleans()), min_size=1, max_size=4).map(
        lambda drawn: [
            Hypothesis((8 + n,), 1 + finished, float(score), float(score), finished)
            for n, (score, finished) in enumerate(sorted(drawn, key=lambda each: (not each[1], -each[0])))
        ]
    ),
    max_size=4,
)


@given(sentences=SENTENCES, n_best=st.integers(1, 5))
def test_the_best_of_a_text_are_the_best_of_all_combinations(sentences: list[list[Hypothesis]], n_best: int) -> None:
    every = [(sum(not h.finished for h in c), -sum(h.score for h in c)) for c in itertools.product(*sentences)]
    found = [Hypothesis.joined(each) for each in best_combinations(sentences, n_best)]
    assert [-each.score for each in found] == [score for _, score in sorted(every)[:n_best]]
    assert found[0].pieces == tuple(hypotheses[0].pieces[0] for hypotheses in sentences)
