"""The whole DAG on one screen. The current engine (``tasks.engine.stage.engine``) plans or runs it."""

from typing import Literal, get_args

from flows.runs import Run
from flows.runs.initial_weights import InitialWeights
from flows.runs.paper_rows import paper_row_of
from tasks.corpus.catalogue import files
from tasks.stages.average import average
from tasks.stages.clean import clean
from tasks.stages.download import MAX_CONCURRENT_DOWNLOADS, download
from tasks.stages.learn_bpe import learn_bpe
from tasks.stages.prepare_sets import prepare_sets
from tasks.stages.register import register
from tasks.stages.report import report
from tasks.stages.score import score
from tasks.stages.shard import NO_LIMITS, shard
from tasks.stages.train import train
from tasks.stages.translate import translate

StageName = Literal[
    "download",
    "prepare_sets",
    "clean",
    "learn_bpe",
    "shard",
    "train",
    "average",
    "translate",
    "score",
    "report",
    "register",
]
STAGES: tuple[StageName, ...] = get_args(StageName)


def reproduce(run: Run, modified: bool, initial: InitialWeights | None) -> None:
    """From archives to a registered model version; ``modified`` marks a run with overrides, which moves no alias.

    A training that starts from a registered version (``training.start``) uses that version's vocabulary too.
    """
    archives = download.map({file.path: file for file in files(run.corpus, run.sets)}, MAX_CONCURRENT_DOWNLOADS)
    sets = {
        s.name: prepare_sets.for_item(s.name)(s, archives[s.source.file.path], archives[s.target.file.path])
        for s in run.sets
    }
    texts = {file.path: archives[file.path] for file in files(run.corpus)}
    corpus = clean(run.corpus, texts, tuple(sets[name] for name in run.filters.exclude), run.filters)
    vocabulary = initial.vocabulary if initial else learn_bpe(corpus, run.vocabulary, run.filters.normalise.quotes)
    shards = shard.for_item("train")(corpus, vocabulary, run.sharding)
    evaluated = {name: pairs for name, pairs in sets.items() if name in (run.evaluate or sets)}
    encoded = {name: shard.for_item(name)(pairs, vocabulary, NO_LIMITS) for name, pairs in evaluated.items()}
    initial_weights = (initial.weights,) if initial else ()
    training = train(shards, encoded[run.dev], vocabulary, run.model, run.training, initial_weights)
    weights = average(training, run.averaging)
    hypotheses = {
        name: translate.for_item(name)(weights, vocabulary, pairs, run.decoding) for name, pairs in encoded.items()
    }
    language = run.corpus.target_language
    scores = {name: score.for_item(name)(hypotheses[name], pairs, name, language) for name, pairs in evaluated.items()}
    page = report(run.name, corpus, shards, training, evaluated, hypotheses, scores, paper_row_of(run))
    register(run.name, weights, vocabulary, page, scores, evaluated, run.dev, modified)
