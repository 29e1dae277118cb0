"""The stages that make a run's synthetic pairs: a model of the reverse direction, its translations, the mixture."""

from collections.abc import Mapping

from flows.runs import Run
from flows.runs.reversal import monolingual_filters, reversed_run
from flows.runs.synthetic import MONOLINGUAL, REVERSE, BackTranslation
from infra.store.local import Artifact
from tasks.corpus.catalogue import files
from tasks.stages.average import average
from tasks.stages.clean import clean
from tasks.stages.learn_bpe import learn_bpe
from tasks.stages.mix import mix
from tasks.stages.prepare_sets import prepare_sets
from tasks.stages.shard import NO_LIMITS, shard
from tasks.stages.train import train
from tasks.stages.translate_text import translate_text


def back_translated(
    run: Run,
    how: BackTranslation,
    archives: Mapping[str, Artifact],
    sets: Mapping[str, Artifact],
    corpus: Artifact,
) -> Artifact:
    """The cleaned pairs of ``corpus`` and those of back-translation. No monolingual line is a line of one of the sets.

    ``archives`` are the downloads by file path, ``sets`` the run's prepared sets by name.
    """
    texts = {file.path: archives[file.path] for file in files(how.monolingual)}
    text = clean.for_item(MONOLINGUAL)(how.monolingual, texts, tuple(sets.values()), monolingual_filters(run))
    weights, vocabulary = reverse_model(reversed_run(run, how.seed), archives)
    translated = translate_text(weights, vocabulary, text, how.decoding, how.lines, how.sampling)
    return mix(corpus, translated, how.tag)


def reverse_model(run: Run, archives: Mapping[str, Artifact]) -> tuple[Artifact, Artifact]:
    """Weights and vocabulary of ``run``, the reversed one: the stages from ``prepare_sets`` to ``average``."""
    sets = {
        s.name: prepare_sets.for_item(f"{REVERSE}/{s.name}")(
            s, archives[s.source.file.path], archives[s.target.file.path]
        )
        for s in run.sets
        if s.name in (run.dev, *run.filters.exclude)
    }
    texts = {file.path: archives[file.path] for file in files(run.corpus)}
    excluded = tuple(sets[name] for name in run.filters.exclude)
    corpus = clean.for_item(REVERSE)(run.corpus, texts, excluded, run.filters)
    vocabulary = learn_bpe.for_item(REVERSE)(corpus, run.vocabulary, run.filters.normalise.quotes)
    shards = shard.for_item(f"{REVERSE}/train")(corpus, vocabulary, run.sharding)
    dev = shard.for_item(f"{REVERSE}/{run.dev}")(sets[run.dev], vocabulary, NO_LIMITS)
    made = train.for_item(REVERSE)(shards, dev, vocabulary, run.model, run.training)
    return average.for_item(REVERSE)(made, run.averaging), vocabulary
