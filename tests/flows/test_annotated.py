"""The teaching implementation of docs/annotated is true: it computes what the product does."""

import ast
import doctest
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import load
import polars as pl
import pyarrow as pa
import pytest
import sacrebleu
import torch
import transformer as taught
from hypothesis import given
from hypothesis import strategies as st
from small_pipeline import run_small
from small_text import train_tokenizer

from flows import api
from flows.runner.request import RunRequest
from model.average import average_checkpoints
from model.config import Decoding, Model, Training
from model.data.batch import Batch
from model.data.bpe import BYTE_DECODER, TokenizerPair
from model.decoding.translator import Translator
from model.network.transformer import Transformer
from model.network.weights import build, save_tensors
from model.training.loss import Objective
from model.training.optimizer import learning_rate, optimizer_of
from tasks.bpe.merges import learn_merges
from tasks.bpe.word_counts import count_chunks
from tasks.demo.corpus import content
from tasks.stages.learn_bpe import Vocabulary, untrained_tokenizer

FILE = Path(taught.__file__)
PAGE = FILE.with_name("index.md")
SIZE = 30
SHAPE = Model(layers=2, d_model=16, d_ff=24, heads=2, d_k=8, d_v=6, p_drop=0.0)
BETWEEN_FLOAT32 = {"atol": 1e-5, "rtol": 1e-4}
BETWEEN_FLOAT64 = {"atol": 1e-12, "rtol": 1e-9}
either_norm = pytest.mark.parametrize("norm", ["post", "pre"])


def both(norm: str, dtype: torch.dtype) -> tuple[Transformer, taught.Transformer]:
    """The same weights in the product and in the teaching model; no bias and no norm is as it starts."""
    torch.manual_seed(0)
    product = build(replace(SHAPE, norm=norm), SIZE, SIZE).to(dtype)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in product.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return product, load.from_product(product)


def pairs(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Sources … eos and targets bos … eos of many lengths, padded on both sides."""
    draw = random.Random(seed)
    rows = [[[draw.randrange(4, SIZE) for _ in range(draw.randrange(9))] for _ in range(2)] for _ in range(7)]
    sources = taught.batch([[*source, taught.EOS] for source, _ in rows])
    return sources, taught.batch([[taught.BOS, *target, taught.EOS] for _, target in rows])


def as_batch(source: torch.Tensor, target: torch.Tensor) -> Batch:
    """The pairs as the product's training reads them."""
    labels = target[:, 1:].flatten()
    real = labels.nonzero().squeeze(1)
    return Batch(source, target[:, :-1], labels[real], real, None, 0, len(real))


@either_norm
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, BETWEEN_FLOAT32), (torch.float64, BETWEEN_FLOAT64)], ids=["32", "64"]
)
def test_logits_loss_and_gradients_are_the_product_s(
    norm: str, dtype: torch.dtype, tolerance: dict[str, float]
) -> None:
    product, model = both(norm, dtype)
    source, target = pairs()
    read = target[:, :-1]
    logits = model(source, read)
    expected = product.logits(product(source, read))
    torch.testing.assert_close(logits[read != taught.PAD], expected[read != taught.PAD], **tolerance)
    loss = taught.label_smoothed_loss(logits, target[:, 1:])
    whole = as_batch(source, target)
    smoothed = Objective(product, smoothing=0.1)(whole)[0] / whole.pieces
    torch.testing.assert_close(loss, smoothed, **tolerance)
    loss.backward()
    smoothed.backward()
    theirs = load.renamed({name: weight.grad for name, weight in product.named_parameters()}, model.shape)
    mine = {name: weight.grad for name, weight in model.named_parameters()}
    assert mine.keys() == theirs.keys()
    torch.testing.assert_close(mine, theirs, **tolerance)


@either_norm
def test_a_training_is_the_product_s(norm: str) -> None:
    product, model = both(norm, torch.float64)
    batches = [pairs(seed) for seed in range(6)]
    losses = list(taught.train(model, batches, warmup=4))
    training = Training(schedule="paper", warmup=4)
    adam = optimizer_of(training, product)
    objective = Objective(product, smoothing=0.1)
    expected = []
    for update, (source, target) in enumerate(batches, start=1):
        adam.param_groups[0]["lr"] = learning_rate(training, SHAPE.d_model, update)
        batch = as_batch(source, target)
        loss = objective(batch)[0] / batch.pieces
        adam.zero_grad()
        loss.backward()
        adam.step()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, rel=1e-9)
    assert max(losses) > 1.01 * min(losses)


def test_checkpoints_are_averaged_as_the_product_does(tmp_path: Path) -> None:
    states = [both("post", torch.float32)[1].state_dict() for _ in range(3)]
    states = [{name: number * weight for name, weight in each.items()} for number, each in enumerate(states)]
    paths = [tmp_path / f"{number}" for number in range(3)]
    for path, state in zip(paths, states, strict=True):
        save_tensors(path, state)
    torch.testing.assert_close(taught.average_checkpoints(states), average_checkpoints(paths))


WORDS = st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 5), min_size=1, max_size=9)


@given(words=WORDS, merges=st.integers(0, 20))
def test_merges_are_the_product_s_whatever_the_words(words: dict[str, int], merges: int) -> None:
    letters = sorted({letter for word in words for letter in word})
    counts = pl.DataFrame({"chunk": list(words), "count": list(words.values())})
    size = len(letters) + merges
    _, theirs = learn_merges([counts], size, 1, letters, {letter: ord(letter) for letter in letters})
    mine = taught.learn_bpe(words, len(theirs))
    assert mine == theirs


def test_merges_and_pieces_of_the_demo_are_the_product_s() -> None:
    lines = (content("demo/train.en") + content("demo/train.de")).decode(errors="replace").split("\n")[::40]
    vocabulary = Vocabulary(size=400, min_frequency=1)
    tokenizer = train_tokenizer([pa.array(lines)], vocabulary)
    theirs = [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]
    letters = {byte: letter for letter, byte in BYTE_DECODER.items()}
    counted = count_chunks(untrained_tokenizer(vocabulary), [pa.array(lines)])
    words = {"".join(letters[byte] for byte in chunk.encode()): count for chunk, count in counted.iter_rows()}
    mine = taught.learn_bpe(words, len(theirs))
    assert mine == theirs
    for word in " ".join(lines[:50]).split():
        if word.isalpha():
            spelt = "".join(letters[byte] for byte in f" {word}".encode())
            assert taught.apply_bpe(spelt, mine) == tokenizer.encode(word).tokens


def test_bleu_is_sacrebleu_s() -> None:
    references = [line.split() for line in content("demo/test.de").decode().splitlines()[:40]]
    draw = random.Random(1)
    hypotheses = [[word for word in words if draw.random() < 0.9] for words in references]
    expected = sacrebleu.corpus_bleu(
        [" ".join(words) for words in hypotheses], [[" ".join(words) for words in references]], tokenize="none"
    )
    assert taught.bleu(hypotheses, references) == pytest.approx(expected.score)
    assert 20 < expected.score < 90


@pytest.fixture(scope="module")
def half_trained(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """A model of the product after 80 updates on the demo's text: it writes German, and ends most sentences."""
    folder = tmp_path_factory.mktemp("vocabulary")
    lines = [content(f"demo/train.{side}").decode(errors="replace").split("\n")[:1200] for side in ("en", "de")]
    tokenizer = train_tokenizer([pa.array(each) for each in lines], Vocabulary(size=600, min_frequency=1))
    tokenizer.save(str(folder / "tokenizer.json"))
    vocabulary = TokenizerPair.load(folder)
    shape = Model(layers=1, d_model=64, d_ff=64, heads=4, d_k=16, d_v=16, norm="pre", p_drop=0.0)
    torch.manual_seed(1)
    product = build(shape, vocabulary.source_size, vocabulary.target_size)
    rows = list(zip(vocabulary.encode_source(lines[0]), vocabulary.encode_target(lines[1]), strict=True))
    adam = torch.optim.Adam(product.parameters(), lr=5e-3)
    for start in range(0, 1200, 15):
        some = rows[start : start + 15]
        source = taught.batch([[*source, taught.EOS] for source, _ in some])
        batch = as_batch(source, taught.batch([[taught.BOS, *target, taught.EOS] for _, target in some]))
        loss = Objective(product, smoothing=0.1)(batch)[0] / batch.pieces
        adam.zero_grad()
        loss.backward()
        adam.step()
    return Translator(product.eval(), vocabulary, torch.device("cpu"))


def test_the_search_finds_the_product_s_hypotheses_and_scores(half_trained: Translator) -> None:
    assert_same_search(half_trained, load.from_product(half_trained.model), 50)


@pytest.mark.slow
def test_the_search_of_the_demo_s_model_is_the_product_s_on_its_whole_test_set(mirror: Path) -> None:
    run_small(RunRequest("demo"))
    assert_same_search(api.load("demo/1").translator, load.from_version("demo/1")[0], 500)


def assert_same_search(product: Translator, model: taught.Transformer, count: int) -> None:
    assert not [each for each in (*model.modules(), *product.model.modules()) if each.training], "no dropout in use"
    lines = product.vocabulary.read(content("demo/test.en").decode().splitlines()[:count])
    sources = product.vocabulary.encode_source(lines)
    expected = product.search(sources, Decoding())
    for source, hypothesis in zip(sources, expected, strict=True):
        score, pieces = taught.beam_search(model, taught.batch([[*source, taught.EOS]]))
        assert score == pytest.approx(hypothesis.score, abs=1e-4)
        assert pieces == [*hypothesis.pieces, *[taught.EOS] * hypothesis.finished]
    assert len({each.length for each in expected}) > 3
    for source, hypothesis in zip(sources[:20], product.search(sources[:20], Decoding(beam=1)), strict=True):
        pieces = taught.greedy_search(model, taught.batch([[*source, taught.EOS]]))
        assert pieces == [*hypothesis.pieces, *[taught.EOS] * hypothesis.finished]


def test_a_registered_version_becomes_a_teaching_model(small: Path) -> None:
    model, vocabulary = load.from_version("small/1")
    product = api.load("small/1").translator.model
    source, target = pairs()
    real = target != taught.PAD
    logits = product.logits(product(source, target))
    torch.testing.assert_close(model(source, target)[real], logits[real], **BETWEEN_FLOAT32)
    assert vocabulary.target_size == model.E.shape[0]


def test_a_version_that_the_page_does_not_explain_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.positions is 'learned', allowed is 'sinusoid' on the page"):
        load.from_product(build(replace(SHAPE, positions="learned"), SIZE, SIZE))


def test_the_outputs_on_the_page_are_those_of_the_file() -> None:
    blocks = re.findall(r"^```pycon\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names = {name: getattr(taught, name) for name in dir(taught)}
    shown = doctest.DocTestParser().get_doctest("\n".join(blocks), names, "page", f"{PAGE}", 0)
    said: list[str] = []
    found = doctest.DocTestRunner().run(shown, out=said.append)
    assert found.attempted > 20
    assert not found.failed, "".join(said)


def test_the_page_includes_the_whole_file() -> None:
    included = set(re.findall(r"^:pyobject: (\w+)$", PAGE.read_text(), re.MULTILINE))
    defined = {
        node.name for node in ast.parse(FILE.read_text()).body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    assert included == defined
    assert len(PAGE.read_text().split()) <= 9_000


def test_the_teaching_file_is_short_and_needs_torch_alone() -> None:
    text = FILE.read_text()
    tree = ast.parse(text)
    documented = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documented |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), start=1)
    code = [line for number, line in lines if line.strip() and number not in documented and line.strip()[0] != "#"]
    assert len(code) <= 300
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {f"{node.module}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"math", "collections", "collections.abc", "dataclasses", "itertools", "torch"}
