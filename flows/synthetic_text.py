"""Calls the stages that make a run's synthetic pairs: train further models, translate, and build pairs."""

from collections.abc import Mapping

from flows.runs import Run
from flows.runs.reversal import monolingual_filters, reversed_run
from flows.runs.synthetic import MONOLINGUAL, REVERSE, TEACHER, BackTranslation, Distillation, further_training
from infra.store.store import Artifact
from tasks.corpus.catalogue import files
from tasks.evaluation.seed_spread import item_of, seed_item
from tasks.evaluation.translation_metrics import has_spaces
from tasks.stages.average import average
from tasks.stages.clean import clean
from tasks.stages.extract_best import extract_best
from tasks.stages.learn_bpe import learn_bpe
from tasks.stages.mix import mix
from tasks.stages.prepare_sets import prepare_sets
from tasks.stages.shard import KEEP_EVERY_PAIR, shard
from tasks.stages.train import train
from tasks.stages.translate_text import translate_text


def training_pairs(
    run: Run, archives: Mapping[str, Artifact], sets: Mapping[str, Artifact], corpus: Artifact, vocabulary: Artifact
) -> Artifact:
    """Return the training pairs of the run's model: those of ``corpus``, with the changes of ``run.synthetic``.

    ``archives`` are the downloads by file path, ``sets`` the run's prepared sets by name, ``corpus`` its cleaned pairs.
    """
    match run.synthetic:
        case None:
            return corpus
        case BackTranslation() as how:
            return back_translated(run, how, archives, sets, corpus)
        case Distillation() as how:
            return distilled(run, how, sets[run.dev], corpus, vocabulary)


def back_translated(
    run: Run, how: BackTranslation, archives: Mapping[str, Artifact], sets: Mapping[str, Artifact], corpus: Artifact
) -> Artifact:
    """Add back-translated pairs to ``corpus``. Removes monolingual lines that occur in a set."""
    texts = {file.path: archives[file.path] for file in files(how.monolingual)}
    filters = monolingual_filters(run)
    excluded = tuple(sets[name] for name in filters.exclude)
    text = clean.for_item(MONOLINGUAL)(how.monolingual, texts, excluded, filters)
    weights, vocabulary = reverse_model(reversed_run(run, how.seed, how.updates), archives)
    translated = translate_text(weights, vocabulary, text, how.decoding, how.lines)
    return mix(corpus, translated, how.tag)


def reverse_model(run: Run, archives: Mapping[str, Artifact]) -> tuple[Artifact, Artifact]:
    """Make weights and vocabulary of the reversed ``run``: the stages from ``prepare_sets`` to ``average``."""
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
    languages = run.vocabulary.languages_to_split(run.corpus.source_language, run.corpus.target_language)
    vocabulary = learn_bpe.for_item(REVERSE)(corpus, run.vocabulary, run.filters.normalise.quotes, languages=languages)
    shards = shard.for_item(f"{REVERSE}/train")(corpus, vocabulary, run.sharding)
    dev = shard.for_item(f"{REVERSE}/{run.dev}")(sets[run.dev], vocabulary, KEEP_EVERY_PAIR)
    made = train.for_item(REVERSE)(shards, dev, vocabulary, run.model, run.training)
    return average.for_item(REVERSE)(made, run.averaging), vocabulary


def distilled(run: Run, how: Distillation, dev: Artifact, corpus: Artifact, vocabulary: Artifact) -> Artifact:
    """Train the teachers on ``corpus`` and pair its sources with their translations."""
    shards = shard.for_item(f"{TEACHER}/train")(corpus, vocabulary, run.sharding)
    encoded = shard.for_item(f"{TEACHER}/{run.dev}")(dev, vocabulary, KEEP_EVERY_PAIR)
    teachers = []
    for seed in how.seeds:
        item = item_of(TEACHER, seed_item(seed))
        training = further_training(run.training, seed, how.updates)
        made = train.for_item(item)(shards, encoded, vocabulary, how.teacher, training)
        teachers.append(average.for_item(item)(made, run.averaging))
    translated = translate_text(
        teachers[0], vocabulary, corpus, how.decoding, n_best=how.n_best, others=tuple(teachers[1:])
    )
    language = run.corpus.target_language
    by = "" if has_spaces(language) else language  # the keys of other languages stay
    return extract_best(corpus, translated, how.references, by, run.vocabulary.lowercase)
