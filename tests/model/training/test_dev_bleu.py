"""Tests of the BLEU of dev checks against sacreBLEU on the same tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import corpus_bleu

from model.training.dev_bleu import bleu, tokenize

SENTENCES = st.lists(st.sampled_from("abcde"), max_size=12)
CORPORA = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=6)


@given(CORPORA)
def test_it_is_sacrebleu_s_on_the_same_tokens(pairs: list[tuple[list[str], list[str]]]) -> None:
    hypotheses, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    texts = [[" ".join(tokens) for tokens in side] for side in (hypotheses, references)]
    expected = corpus_bleu(texts[0], [texts[1]], tokenize="none", force=True).score
    assert bleu(hypotheses, references) == pytest.approx(expected)


def test_a_text_is_split_into_words_and_marks() -> None:
    assert " ".join(tokenize("Zwei Männer, 3.5 m groß – wow!")) == "Zwei Männer , 3 . 5 m groß – wow !"
    assert tokenize(" \n") == []
