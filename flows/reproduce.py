"""Defines the whole DAG on one screen. The current engine (``tasks.engine.stage.engine``) plans or runs it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

from flows.runs import Run
from flows.runs.initial_weights import InitialWeights
from flows.runs.paper_rows import paper_row_of
from flows.runs.synthetic import BackTranslation
from flows.synthetic_text import training_pairs
from infra.store.store import Artifact
from tasks.corpus.catalogue import files
from tasks.evaluation.seed_spread import ENSEMBLE, OWN_MODEL, item_of, seed_item
from tasks.stages.average import average
from tasks.stages.clean import check_share, clean
from tasks.stages.download import MAX_CONCURRENT_DOWNLOADS, download
from tasks.stages.learn_bpe import learn_bpe
from tasks.stages.prepare_sets import prepare_sets
from tasks.stages.register import register
from tasks.stages.report import report
from tasks.stages.score import score
from tasks.stages.shard import KEEP_EVERY_PAIR, shard
from tasks.stages.train import train
from tasks.stages.translate import translate

StageName = Literal[
    "download",
    "prepare_sets",
    "clean",
    "learn_bpe",
    "translate_text",
    "mix",
    "extract_best",
    "shard",
    "train",
    "average",
    "translate",
    "score",
    "report",
    "register",
]
STAGES: tuple[StageName, ...] = get_args(StageName)
"""All stages in order; only runs with synthetic pairs have ``translate_text``, ``mix`` and ``extract_best``."""


def reproduce(run: Run, modified: bool, initial: InitialWeights | None) -> None:
    """Go from archives to a registered model version; ``modified`` marks a run with overrides, which moves no alias.

    A run may have three extras. ``initial`` holds weights and vocabulary of a registered version (``training.start``)
    or a training to continue (``training.continue``). ``flows.synthetic_text`` makes synthetic pairs.
    ``decoding.ensemble`` makes models of further seeds and their ensemble: they are scored like the run's own model,
    but not registered.
    """
    # Text
    archives = download_archives(run)
    sets = prepare_all_sets(run, archives)
    archives_of_corpus = {file.path: archives[file.path] for file in files(run.corpus)}
    excluded_sets = tuple(sets[name] for name in run.filters.exclude)
    corpus = clean(run.corpus, archives_of_corpus, excluded_sets, run.filters)
    check_share(run.corpus, run.filters, corpus.facts, "; `clean` is cached, so nothing began: no record, no log")

    # Vocabulary and shards
    vocabulary = initial.vocabulary[0] if initial and initial.vocabulary else learn_vocabulary(run, corpus)
    pairs = training_pairs(run, archives, sets, corpus, vocabulary)
    train_shards = shard.for_item("train")(pairs, vocabulary, run.sharding, run.augment)
    evaluated_names = run.evaluate or tuple(sets)
    evaluated = {name: prepared for name, prepared in sets.items() if name in evaluated_names}
    set_shards = {
        name: shard.for_item(name)(prepared, vocabulary, KEEP_EVERY_PAIR) for name, prepared in evaluated.items()
    }

    # Weights of the run's own model and of each further seed's
    seed = run.training.seed
    items = {seed: OWN_MODEL, **{each: seed_item(each) for each in run.decoding.ensemble if each != seed}}
    dev_shards = set_shards[run.dev]
    initial_weights = initial.weights if initial else ()
    continued = initial.continued if initial else ()
    trained = {}
    for own_seed, item in items.items():
        training = replace(run.training, seed=own_seed)
        trained[item] = train.for_item(item)(
            train_shards, dev_shards, vocabulary, run.model, training, initial_weights, continued
        )
    weights = {item: average.for_item(item)(made, run.averaging) for item, made in trained.items()}

    # Translations and scores of each model, and of all as an ensemble
    systems: dict[str, tuple[Artifact, ...]] = {item: (made,) for item, made in weights.items()}
    if len(weights) > 1:
        systems[ENSEMBLE] = tuple(weights[items[each]] for each in sorted(items))
    hypotheses = {
        system: translate_sets(run, system, models, vocabulary, sets, set_shards) for system, models in systems.items()
    }
    scores = {system: score_sets(run, system, made, evaluated) for system, made in hypotheses.items()}
    seeds = {
        name: {system or seed_item(seed): made[name] for system, made in scores.items()}
        for name in evaluated
        if len(scores) > 1
    }

    # Report and version
    page = report(
        run.name,
        corpus=corpus,
        shards=train_shards,
        run=trained[OWN_MODEL],
        sets=evaluated,
        hypotheses=hypotheses[OWN_MODEL],
        scores=scores[OWN_MODEL],
        paper=paper_row_of(run),
        seeds=seeds or None,
        synthetic=pairs if run.synthetic else None,
    )
    register(
        run.name,
        weights=weights[OWN_MODEL],
        vocabulary=vocabulary,
        report=page,
        scores=scores[OWN_MODEL],
        sets=evaluated,
        dev=run.dev,
        modified=modified,
        normalise=run.filters.normalise,
        min_champion_bleu=float(run.min_champion_bleu),
    )


def download_archives(run: Run) -> dict[str, Artifact]:
    """Download every file that the run reads; return the downloads by file path."""
    needed = [*files(run.corpus, run.sets)]
    if isinstance(run.synthetic, BackTranslation):
        needed += files(run.synthetic.monolingual)
    by_path = {file.path: file for file in needed}
    return download.map(by_path, MAX_CONCURRENT_DOWNLOADS)


def prepare_all_sets(run: Run, archives: Mapping[str, Artifact]) -> dict[str, Artifact]:
    """Prepare every evaluation set of the run; return them by name."""
    prepared = {}
    for each in run.sets:
        source = archives[each.source.file.path]
        target = archives[each.target.file.path]
        prepared[each.name] = prepare_sets.for_item(each.name)(each, source, target)
    return prepared


def learn_vocabulary(run: Run, corpus: Artifact) -> Artifact:
    """Learn the vocabulary, with a piece for the tag of back-translated sources."""
    tag = run.synthetic.tag if isinstance(run.synthetic, BackTranslation) else ""
    languages = run.vocabulary.languages_to_split(run.corpus.source_language, run.corpus.target_language)
    return learn_bpe(corpus, run.vocabulary, run.filters.normalise.quotes, tag, languages, run.augment)


def translate_sets(
    run: Run,
    system: str,
    models: tuple[Artifact, ...],
    vocabulary: Artifact,
    sets: Mapping[str, Artifact],
    set_shards: Mapping[str, Artifact],
) -> dict[str, Artifact]:
    """Translate every evaluated set with a model or an ensemble; return the translations by set."""
    return {
        name: translate.for_item(item_of(name, system))(
            models[0], vocabulary, shards, sets[name], run.decoding, run.filters.normalise, models[1:]
        )
        for name, shards in set_shards.items()
    }


def score_sets(
    run: Run, system: str, hypotheses: Mapping[str, Artifact], evaluated: Mapping[str, Artifact]
) -> dict[str, Artifact]:
    """Score the translations of every evaluated set, a noised set after its clean set; return the scores by set."""
    scores: dict[str, Artifact] = {}
    sets = [each for each in run.sets if each.name in hypotheses]
    for each in sorted(sets, key=lambda each: len(each.noise)):
        name = each.name
        score_set = score.for_item(item_of(name, system))
        clean_score = scores[each.clean_name] if each.noise else None
        scores[name] = score_set(hypotheses[name], evaluated[name], name, run.corpus.target_language, clean_score)
    return {name: scores[name] for name in hypotheses}
