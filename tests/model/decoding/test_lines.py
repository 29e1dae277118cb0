"""Lines are split into sentences and joined again; nothing is lost and nothing is cut silently."""

import itertools
import re
from math import fsum
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model.config import Decoding, Model, Sampling
from model.decoding.beam_search import Hypothesis
from model.decoding.lines import LineTranslator, Splitting, beam_searcher, check_known, sampler
from model.decoding.sentence_splitting import splitter, unsplit
from model.decoding.translator import Translator
from tasks.stages.learn_bpe import Vocabulary, train_tokenizer
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


def lines_of(translator: Translator, splitting: Splitting, n_best: int = 1) -> LineTranslator:
    return LineTranslator(translator, beam_searcher(translator, DECODING, n_best), splitting, n_best)


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
    sentences = by_full_stops(PARAGRAPH)
    alone = translator.translate(sentences, DECODING)
    always = lines_of(translator, Splitting("always", by_full_stops)).translate(["A dog", PARAGRAPH, "", " \t"])
    assert [line.sentences for line in always] == [1, 4, 0, 0]
    [joined] = always[1].translations
    assert joined.text == " ".join(each.text for each in alone if each.text)
    assert joined.pieces == tuple(piece for each in alone for piece in each.pieces)
    assert joined.score == pytest.approx(fsum(each.score for each in alone), abs=1e-4)
    assert joined.finished == all(each.finished for each in alone)
    assert [line.translations[0].text for line in always[2:]] == ["", ""]
    never = lines_of(translator, Splitting("never", by_full_stops)).translate([PARAGRAPH])
    assert never[0].translations[0].pieces == translator.translate([PARAGRAPH], DECODING)[0].pieces


def test_long_mode_splits_only_lines_longer_than_in_training(translator: Translator) -> None:
    pieces = len(translator.vocabulary.encode_source([PARAGRAPH])[0])
    for longest, sentences in ((pieces, 1), (pieces - 1, 4)):
        [line] = lines_of(translator, Splitting("long", by_full_stops, longest)).translate([PARAGRAPH])
        assert line.sentences == sentences


@pytest.mark.parametrize("when", ["long", "always", "never"])
def test_a_sentence_that_is_too_long_is_named_and_others_are_translated(vocabulary: Path, when: str) -> None:
    short = translator_of(vocabulary, Model(**{**vars(SHAPE), "positions": "learned", "max_positions": 20}))
    tail = "7" + " 7" * 30
    lines = lines_of(short, Splitting(when, by_full_stops, 19))  # type: ignore[arg-type]
    first, second, third = lines.translate(["A dog", f"Two dogs run. {tail}", "A dog"])
    assert first.translations == third.translations != ()
    assert second.translations == ()
    longest = len(short.vocabulary.encode_source([f"Two dogs run. {tail}" if when == "never" else tail])[0])
    assert lines.why_empty(second, 8).startswith("line 8 has ")
    assert lines.why_empty(second, 8).endswith(f" {longest} pieces, the longest that this model takes has 19")


SENTENCES = st.lists(
    st.lists(st.tuples(st.integers(-9, 0), st.booleans()), min_size=1, max_size=4).map(
        lambda drawn: [
            Hypothesis((8 + n,), float(score), float(score), finished)
            for n, (score, finished) in enumerate(sorted(drawn, key=lambda each: (not each[1], -each[0])))
        ]
    ),
    max_size=4,
)


@given(sentences=SENTENCES, n_best=st.integers(1, 5))
def test_the_best_of_a_line_are_the_best_of_all_combinations(
    translator: Translator, sentences: list[list[Hypothesis]], n_best: int
) -> None:
    every = [(sum(not h.finished for h in c), -sum(h.score for h in c)) for c in itertools.product(*sentences)]
    found = LineTranslator(translator, lambda *_: [], Splitting(), n_best).combine_sentences(sentences)
    assert [-each.score for each in found] == [score for _, score in sorted(every)[:n_best]]
    assert found[0].pieces == tuple(hypotheses[0].pieces[0] for hypotheses in sentences)


@settings(max_examples=6)
@given(size=st.integers(1, 5), draws=st.booleans())
def test_blocks_of_any_size_give_the_same(translator: Translator, size: int, draws: bool) -> None:
    text = ["A dog", PARAGRAPH, "", "It's 2014.", PARAGRAPH]

    def pieces(at_once: int) -> list[tuple[int, ...]]:
        search = sampler(translator, Sampling(seed=3), DECODING) if draws else beam_searcher(translator, DECODING)
        lines = LineTranslator(translator, search, Splitting("always", by_full_stops))
        blocks = (lines.translate(text[start : start + at_once]) for start in range(0, len(text), at_once))
        return [line.translations[0].pieces for block in blocks for line in block]

    found = pieces(size)
    assert found == pieces(len(text))
    assert (found[1] != found[4]) == draws


@pytest.mark.parametrize("draws", [False, True])
def test_a_translation_begins_with_its_lines_prefix(translator: Translator, draws: bool) -> None:
    search = sampler(translator, Sampling(seed=3), DECODING) if draws else beam_searcher(translator, DECODING)
    prefixes = ["Grünes 2014", "", " The men ", "lost", "A dog"]
    text = ["A dog", PARAGRAPH, PARAGRAPH, "", "It's 2014."]
    found = LineTranslator(translator, search, Splitting("always", by_full_stops)).translate(text, prefixes)
    texts = [line.translations[0].text for line in found]
    begun = [found.startswith(prefix.strip()) for found, prefix in zip(texts, prefixes, strict=True)]
    assert begun == [True, True, True, False, True]
    assert texts[3] == ""
    assert [line.sentences for line in found] == [1, 4, 4, 0, 1]
    if not draws:
        plain = lines_of(translator, Splitting("always", by_full_stops)).translate(text)
        assert texts[1] == plain[1].translations[0].text
        assert not plain[0].translations[0].text.startswith("Grünes 2014")


def test_a_prefix_that_is_too_long_is_named_and_others_are_translated(vocabulary: Path) -> None:
    short = translator_of(vocabulary, Model(**{**vars(SHAPE), "positions": "learned", "max_positions": 20}))
    lines = lines_of(short, Splitting("never"))
    fits, too_long = "7" + " 7" * 8, "7" + " 7" * 9
    pieces = [len(ids) for ids in short.vocabulary.encode_target([fits, too_long])]
    assert pieces == [18, 20]
    first, second = lines.translate(["A dog", "A dog"], [fits, too_long])
    assert first.translations[0].text.startswith(fits)
    assert second.translations == ()
    assert lines.why_empty(second, 2) == ("line 2 has a prefix of 20 pieces, the longest that this model takes has 19")


def test_a_prefix_with_an_unknown_character_is_named(tmp_path: Path) -> None:
    latin = Vocabulary(size=290, min_frequency=1, scripts=("Latin",))
    train_tokenizer([pa.array(LINES * 3)], latin).save(str(tmp_path / "tokenizer.json"))
    allowed = "allowed is a text whose words and characters are in the model's vocabulary"
    with pytest.raises(ValueError, match=f"prefix is 'A Жук', {allowed}; 'Ж' is not"):
        check_known("prefix", "A Жук", translator_of(tmp_path))


def test_a_prefix_with_an_unknown_word_is_named_and_others_are_translated(tmp_path: Path) -> None:
    words = Vocabulary(size=290, min_frequency=1, tokens="words", lowercase=True)
    train_tokenizer([pa.array(LINES * 3)], words).save(str(tmp_path / "tokenizer.json"))
    lines = lines_of(translator_of(tmp_path), Splitting("never"))
    first, second, third = lines.translate(["A dog", "A dog", "A dog"], ["Two dogs", "Two zebras run", ""])
    assert first.translations[0].text.startswith("two dogs")
    assert (second.translations, second.unknown) == ((), "zebras")
    assert third.translations
    assert lines.why_empty(second, 2) == "line 2 has a prefix with 'zebras', which is not in this model's vocabulary"
    with pytest.raises(ValueError, match="prefix is 'Two zebras', allowed is .*; 'zebras' is not"):
        check_known("prefix", "Two zebras", lines.translator)


def test_impossible_settings_are_named(translator: Translator) -> None:
    with pytest.raises(ValueError, match="n_best is 6, allowed is 1 to 5, the most that can finish"):
        beam_searcher(translator, DECODING, 6)
    with pytest.raises(ValueError, match="split is 'sometimes', allowed is long, always or never"):
        Splitting("sometimes", unsplit)  # type: ignore[arg-type]
