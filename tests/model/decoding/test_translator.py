"""The translator keeps the order of lines, gives the same results in any batch and scores as the model does."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import translated
from small_text import train_tokenizer
from torch import Tensor

from model.config import Decoding, Model
from model.config.special_pieces import EOS
from model.data.bpe import TokenizerPair
from model.decoding.batches import batch_by_length
from model.decoding.cached_decoder import CachedDecoder
from model.decoding.translation import Hypothesis
from model.decoding.translator import Translator
from model.errors import JobError
from model.network.transformer import Transformer
from model.network.weights import save_model
from tasks.stages.learn_bpe import Vocabulary

LINES = ["Two dogs run.", "", "A dog", "The men don't run over the green meadow again.", "   ", "It's 2014, isn't it?"]
DECODING = Decoding(beam=3, alpha=2.0, max_extra=4)
SHAPE = Model(layers=2, d_model=32, d_ff=64, heads=2, d_k=16, d_v=16, init="normal", tied=False)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary")
    train_tokenizer([pa.array(LINES * 3)], Vocabulary(size=290, min_frequency=1)).save(str(folder / "tokenizer.json"))
    return folder


class FrequentEos(Transformer):
    """Random weights seldom end a sentence; these often do, wherever they are asked."""

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        return with_frequent_eos(super().logits(hidden_BTD))


def with_frequent_eos(logits: Tensor) -> Tensor:
    logits[..., EOS] = logits.amax(dim=-1) - 1.0
    return logits


@pytest.fixture(autouse=True, scope="module")
def search_with_frequent_eos() -> Iterator[None]:
    """The search computes the logits of a model by itself."""
    plain = CachedDecoder.advance
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CachedDecoder, "advance", lambda self, pieces_R: with_frequent_eos(plain(self, pieces_R)))
        yield


def translator_of(vocabulary: Path, shape: Model = SHAPE) -> Translator:
    torch.manual_seed(3)
    pair = TokenizerPair.load(vocabulary)
    return Translator(FrequentEos(shape, pair.source_size, pair.target_size).eval(), pair, torch.device("cpu"))


@pytest.fixture(scope="module")
def translator(vocabulary: Path) -> Translator:
    return translator_of(vocabulary)


def same(found: list[Hypothesis], expected: list[Hypothesis]) -> bool:
    return [t.pieces for t in found] == [t.pieces for t in expected] and [t.score for t in found] == pytest.approx(
        [t.score for t in expected], abs=1e-4
    )


@settings(max_examples=6)
@given(order=st.permutations(range(len(LINES))), budget=st.sampled_from([1, 20, 40, 1000]))
def test_a_line_is_translated_the_same_alone_and_in_any_batch(
    translator: Translator, order: list[int], budget: int
) -> None:
    translator.batch_pieces = 1000
    alone = [translated(translator, [line], DECODING)[0] for line in LINES]
    assert len({t.pieces for t in alone}) > 2
    translator.batch_pieces = budget
    together = translated(translator, [LINES[n] for n in order], DECODING)
    assert same(together, [alone[n] for n in order])


@pytest.mark.parametrize(("beam", "batches"), [(1, 2), (4, 2), (8, 4)])
def test_a_wide_beam_takes_smaller_batches(translator: Translator, beam: int, batches: int) -> None:
    translator.batch_pieces = 32
    done: list[int] = []
    translator.search([[5, 6]] * 8, replace(DECODING, beam=beam), lambda number, _: done.append(number))
    assert len(done) == batches


def test_an_empty_line_stays_empty_and_costs_nothing(translator: Translator) -> None:
    for translation in (translated(translator, LINES, DECODING)[1], *translated(translator, ["", " \t"], DECODING)):
        assert (translation.text, translation.log_probability, translation.pieces) == ("", 0.0, ())
    assert translated(translator, [], DECODING) == []


def test_learned_positions_bound_the_output(vocabulary: Path) -> None:
    translator = translator_of(vocabulary, Model(**{**vars(SHAPE), "positions": "learned", "max_positions": 20}))
    source = list(range(4, 23))
    [hypothesis] = translator.search([source], Decoding(beam=2, max_extra=50))
    assert hypothesis.length <= 20
    translator.check_target(source, "target")
    assert translator.log_probabilities([source], [source])[0] < 0
    with pytest.raises(ValueError, match="target has 20 pieces, .* takes has 19"):
        translator.check_target([*source, 4], "target")


def test_the_search_scores_as_the_model_does_with_the_whole_target_at_once(translator: Translator) -> None:
    draw = random.Random(1)
    sources = [[draw.randrange(4, 290) for _ in range(draw.randrange(1, 12))] for _ in range(40)]
    hypotheses = translator.search(sources, Decoding(beam=4, alpha=2.0, max_extra=5))
    finished = [n for n, hypothesis in enumerate(hypotheses) if hypothesis.finished]
    assert len({hypotheses[n].length for n in finished}) > 1
    found = translator.log_probabilities([sources[n] for n in finished], [hypotheses[n].pieces for n in finished])
    assert found == pytest.approx([hypotheses[n].log_probability for n in finished], abs=1e-3)


def test_log_probabilities_are_sums_over_the_target_and_its_eos(translator: Translator) -> None:
    sources, targets = [[5, 9, 11], [7], [8, 8, 8, 20, 6]], [[30], [12, 200, 13, 4], []]
    expected = []
    for source, target in zip(sources, targets, strict=True):
        hidden = translator.model(torch.tensor([[*source, EOS]]), torch.tensor([[1, *target]]))
        log_p = translator.model.logits(hidden)[0].log_softmax(-1).detach()
        expected.append(sum(float(log_p[t, piece]) for t, piece in enumerate([*target, EOS])))
    done: list[tuple[int, int]] = []
    translator.batch_pieces = 8
    found = translator.log_probabilities(sources, targets, lambda *now: done.append(now))
    assert found == pytest.approx(expected, abs=1e-3)
    assert done == sorted(done)
    assert done[-1] == (3, 3)


def ensemble_of(vocabulary: Path, *shapes: Model) -> Translator:
    torch.manual_seed(4)
    models = [FrequentEos(shape, 290, 290).eval() for shape in shapes]
    return Translator(models[0], TokenizerPair.load(vocabulary), torch.device("cpu"), models[1:])


def test_an_ensemble_scores_by_the_mean_of_probabilities_in_search_and_of_references(vocabulary: Path) -> None:
    shallow = Model(**{**vars(SHAPE), "layers": 1, "positions": "learned", "max_positions": 40})
    ensemble = ensemble_of(vocabulary, SHAPE, shallow)
    assert (ensemble.longest_source, ensemble.longest_target) == (39, 40)
    sources = [[5, 9, 11], [7], [8, 8, 8, 20, 6]]
    found = ensemble.search(sources, DECODING)
    for source, hypothesis in zip(sources, found, strict=True):
        read = torch.tensor([[1, *hypothesis.pieces]])
        p = torch.stack(
            [m.logits(m(torch.tensor([[*source, EOS]]), read))[0].softmax(-1).detach() for m in ensemble.models]
        ).mean(dim=0)
        written = [*hypothesis.pieces, EOS][: hypothesis.length]
        expected = sum(float(p[t, piece].log()) for t, piece in enumerate(written))
        assert hypothesis.log_probability == pytest.approx(expected, abs=1e-3)
        if hypothesis.finished:
            again = ensemble.log_probabilities([source], [hypothesis.pieces])
            assert again == pytest.approx([expected], abs=1e-3)
    assert any(hypothesis.finished for hypothesis in found)
    single = Translator(ensemble.model, ensemble.vocabulary, ensemble.device)
    assert [h.pieces for h in single.search(sources, DECODING)] != [h.pieces for h in found]


def test_a_hypothesis_is_one_line(translator: Translator) -> None:
    [pieces] = translator.vocabulary.encode_target(["a\nb\r\nc"])
    assert translator.text(Hypothesis(tuple(pieces), 9, -1.0, -1.0, finished=True)) == "a b c"


def test_loading(tmp_path: Path, vocabulary: Path, translator: Translator) -> None:
    save_model(tmp_path, translator.model)
    loaded = Translator.load(tmp_path, vocabulary, device="cpu")
    assert loaded.log_probabilities([[5, 6]], [[]]) != translator.log_probabilities([[5, 6]], [[]])
    loaded.model.logits = translator.model.logits
    assert same(translated(loaded, LINES, DECODING), translated(translator, LINES, DECODING))
    save_model(tmp_path, Transformer(SHAPE, 300, 300))
    with pytest.raises(ValueError, match="source vocabulary size is 290, allowed is the model's 300"):
        Translator.load(tmp_path, vocabulary, device="cpu")
    with pytest.raises(JobError, match=r"tokenizer\.json"):
        Translator.load(tmp_path, tmp_path, device="cpu")


@given(lengths=st.lists(st.integers(1, 30)), budget=st.integers(1, 90))
def test_batches_hold_every_sentence_once_within_the_budget(lengths: list[int], budget: int) -> None:
    found = list(batch_by_length(lengths, budget))
    assert sorted(position for batch in found for position in batch) == list(range(len(lengths)))
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(lengths[position] for position in batch) <= budget


SOURCES = [[7, 8, 9], [], [5], [9, 8, 7, 6, 5, 4, 30, 31]]


def test_the_first_of_several_is_the_best(translator: Translator) -> None:
    translator.batch_pieces = 1000
    several = translator.search_n_best(SOURCES, DECODING, 3)
    assert [best for best, *_ in several] == translator.search(SOURCES, DECODING)
    for hypotheses in several:
        assert hypotheses == sorted(hypotheses, key=lambda h: (-h.finished, -h.score))
        assert len({h.pieces for h in hypotheses}) == len(hypotheses)
    assert list(map(len, several)) == [3, 1, 3, 3]


@given(source=st.integers(1, 40), most=st.integers(1, 30), least=st.integers(0, 30))
def test_lengths_are_those_of_the_settings(source: int, most: int, least: int) -> None:
    shortest, longest = Decoding(max_extra=most, min_length=least).lengths(source)
    assert 1 <= shortest <= longest == source - 1 + most
    assert shortest == min(least + 1, longest)
