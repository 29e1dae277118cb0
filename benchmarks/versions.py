"""The model versions that are measured: a registered one, or random weights of a size, with either search engine."""

import argparse
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from model.config.decoding import Quantization

if TYPE_CHECKING:
    from model.decoding.version_translator import VersionTranslator

WORD_LIST = "the a old young woman man dog cat house sees reads buys book apple red small town children teacher not"
WORDS = WORD_LIST.split()


def sentences(file: str, words: int, seed: int) -> Iterator[str]:
    """Yield sentences of so many words without end: lines of ``file``, or random words where it is empty.

    Raises ValueError if no line of the file has so many words.
    """
    draw = random.Random(seed)
    lines = [line for line in Path(file).read_text().splitlines() if len(line.split()) == words] if file else []
    if file and not lines:
        raise ValueError(f"{file} has no line of {words} words: choose another --words")
    while True:
        yield draw.choice(lines) if lines else " ".join(draw.choice(WORDS) for _ in range(words)) + "."


def version(
    chosen: argparse.Namespace, engine: str, folder: Path, workers: int = 1, quantization: Quantization = "float32"
) -> "VersionTranslator":
    """Load ``chosen.model``, or make random weights of ``chosen.size``, with the engine ``own`` or ``ctranslate2``.

    CTranslate2's form is written into ``folder``, which must not exist: it is used however it compares. ``workers``
    batches are searched at once, each by ``chosen.threads`` threads.
    """
    from flows.inference.load_version import load_version, select_versions
    from infra.site import Site
    from infra.tracking.model_files import local_folder
    from model.decoding.search_engine import Opened, SearchEngine
    from model.export.ctranslate2 import write_folder
    from model.export.ctranslate2_form import CTranslate2Search

    folder.mkdir(parents=True)
    if chosen.model:
        site = replace(Site.named(), threads=chosen.threads)
        [registered] = select_versions([chosen.model], site)
        served = load_version(registered, site, "own")
        model = local_folder(site.tracking, registered)
        weights = model / "weights"
        vocabulary = model / "vocabulary"
    else:
        weights = folder / "weights"
        vocabulary = folder / "vocabulary"
        served = random_version(chosen, weights, vocabulary)
    if engine == "own":
        return served
    form = folder / "form"
    form.mkdir()
    write_folder(served.name, weights, vocabulary, served.decoding, form, quantization)
    other = CTranslate2Search(form, served.translator.vocabulary, chosen.threads, workers)
    engine_of_form = SearchEngine(served.translator, "ctranslate2", lambda: Opened(other, quantization))
    return replace(served, engine=engine_of_form)


def random_version(chosen: argparse.Namespace, weights: Path, vocabulary: Path) -> "VersionTranslator":
    """Write and load random weights, with a vocabulary learnt from the clients' words, padded to the shape's size.

    Each word is a token, so that sources have one length; outputs have up to ten tokens more, as they seldom end.
    """
    import pyarrow as pa
    import torch
    from tokenizers import AddedToken, Tokenizer

    from benchmarks.comparison import SIZES
    from model.config import Decoding
    from model.data.bpe import SOURCE_FILE
    from model.decoding.search_engine import SearchEngine
    from model.decoding.sentence_splitting import splitter
    from model.decoding.translator import Translator
    from model.decoding.version_translator import VersionTranslator
    from model.network.transformer import Transformer
    from model.network.weights import save_model
    from tasks.bpe.word_counts import count_chunks
    from tasks.stages.learn_bpe import Vocabulary, train_from_counts, untrained_tokenizer

    torch.manual_seed(chosen.seed)
    shape, size = SIZES[chosen.size]
    learnt = Vocabulary(size=329, min_frequency=1)
    counts = count_chunks(untrained_tokenizer(learnt), [pa.array([WORD_LIST] * 4)])
    found: Tokenizer = train_from_counts([counts], learnt)
    fill = size - found.get_vocab_size()
    found.add_tokens([AddedToken(f"qx{number}xq", normalized=False) for number in range(fill)])
    for folder in (weights, vocabulary):
        folder.mkdir()
    found.save(str(vocabulary / SOURCE_FILE))
    save_model(weights, Transformer(shape, size, size).eval())
    translator = Translator.load(weights, vocabulary, "cpu", chosen.threads)
    decoding = Decoding(beam=chosen.beam, max_extra=10)
    engine = SearchEngine(translator)
    return VersionTranslator("random/1", translator, engine, splitter("en"), decoding, translator.longest_source)
