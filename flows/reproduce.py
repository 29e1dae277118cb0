"""The whole DAG on one screen. The current engine (``tasks.engine.stage.engine``) plans or runs it."""

from dataclasses import replace
from typing import Literal, get_args

from flows.runs import Run
from flows.runs.initial_weights import InitialWeights
from flows.runs.paper_rows import paper_row_of
from flows.runs.synthetic import REVERSE, TEACHER, BackTranslation
from flows.synthetic_text import training_pairs
from infra.store.store import Artifact
from tasks.corpus.catalogue import files
from tasks.evaluation.seed_spread import ENSEMBLE, OWN_MODEL, item_of, seed_item
from tasks.stages.average import average
from tasks.stages.clean import clean
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
"""All stages in their order; only runs with synthetic pairs have ``SYNTHETIC_STAGES``."""
SYNTHETIC_STAGES: tuple[StageName, ...] = ("translate_text", "mix", "extract_best")
COUNTED_AS: dict[str, StageName] = {REVERSE: "translate_text", TEACHER: "translate_text"}
"""The stages of the reverse model and of the teachers come before ``mix``, whatever their own stage."""


def reproduce(run: Run, modified: bool, initial: InitialWeights | None) -> None:
    """From archives to a registered model version; ``modified`` marks a run with overrides, which moves no alias.

    A training that starts from a registered version (``training.start``) uses that version's vocabulary too. The models
    of further seeds (``decoding.ensemble``) and their ensemble are scored beside the run's own, which alone is
    registered.
    """
    back = run.synthetic if isinstance(run.synthetic, BackTranslation) else None
    needed = (*files(run.corpus, run.sets), *(files(back.monolingual) if back else ()))
    archives = download.map({file.path: file for file in needed}, MAX_CONCURRENT_DOWNLOADS)
    sets = {
        s.name: prepare_sets.for_item(s.name)(s, archives[s.source.file.path], archives[s.target.file.path])
        for s in run.sets
    }
    texts = {file.path: archives[file.path] for file in files(run.corpus)}
    corpus = clean(run.corpus, texts, tuple(sets[name] for name in run.filters.exclude), run.filters)
    quotes, tag = run.filters.normalise.quotes, back.tag if back else ""
    vocabulary = initial.vocabulary if initial else learn_bpe(corpus, run.vocabulary, quotes, tag)
    pairs = training_pairs(run, archives, sets, corpus, vocabulary)
    shards = shard.for_item("train")(pairs, vocabulary, run.sharding)
    evaluated = {name: pairs for name, pairs in sets.items() if name in (run.evaluate or sets)}
    encoded = {name: shard.for_item(name)(pairs, vocabulary, KEEP_EVERY_PAIR) for name, pairs in evaluated.items()}
    initial_weights = (initial.weights,) if initial else ()
    own, models = run.training.seed, {run.training.seed: OWN_MODEL}
    models |= {seed: seed_item(seed) for seed in run.decoding.ensemble if seed != own}
    trainings = {
        seed: train.for_item(model)(
            shards, encoded[run.dev], vocabulary, run.model, replace(run.training, seed=seed), initial_weights
        )
        for seed, model in models.items()
    }
    averaged = {models[seed]: average.for_item(models[seed])(made, run.averaging) for seed, made in trainings.items()}
    systems: dict[str, tuple[Artifact, ...]] = {model: (made,) for model, made in averaged.items()}
    if len(systems) > 1:
        systems[ENSEMBLE] = tuple(averaged[models[seed]] for seed in sorted(models))
    translated = {
        (name, system): translate.for_item(item_of(name, system))(
            weights[0], vocabulary, pairs, sets[name], run.decoding, run.filters.normalise, weights[1:]
        )
        for system, weights in systems.items()
        for name, pairs in encoded.items()
    }
    language = run.corpus.target_language
    scored = {
        (name, system): score.for_item(item_of(name, system))(
            hypotheses, evaluated[name], name, language, (run.comet,) if run.comet.path else ()
        )
        for (name, system), hypotheses in translated.items()
    }
    hypotheses, scores = ({name: made[name, OWN_MODEL] for name in evaluated} for made in (translated, scored))
    by_system = {name: {system or seed_item(own): scored[name, system] for system in systems} for name in evaluated}
    seeds = by_system if len(systems) > 1 else None
    row, synthetic = paper_row_of(run), pairs if run.synthetic else None
    page = report(run.name, corpus, shards, trainings[own], evaluated, hypotheses, scores, row, seeds, synthetic)
    register(
        run.name,
        averaged[OWN_MODEL],
        vocabulary,
        page,
        scores,
        evaluated,
        run.dev,
        modified,
        run.filters.normalise,
        run.min_champion_bleu,
    )
