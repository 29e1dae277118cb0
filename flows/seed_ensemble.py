"""The models of further seeds (``decoding.ensemble``) and their ensemble, beside a run's own model.

They are trained, averaged, translated and scored as the run's own model is, but none of them is registered. A run
without ``decoding.ensemble`` has none: every function then returns an empty dictionary.
"""

from collections.abc import Mapping
from dataclasses import replace

from flows.runs import Run
from infra.store.store import Artifact
from tasks.evaluation.seed_spread import ENSEMBLE, seed_item
from tasks.stages.average import average
from tasks.stages.train import train

System = str
"""``seed-2`` or ``ensemble``."""


def train_further_seeds(
    run: Run, shards: Artifact, dev_shards: Artifact, vocabulary: Artifact, initial_weights: tuple[Artifact, ...]
) -> dict[int, Artifact]:
    """Train the run's model once for each further seed."""
    trained = {}
    for seed in run.decoding.ensemble:
        if seed != run.training.seed:
            training = replace(run.training, seed=seed)
            train_seed = train.for_item(seed_item(seed))
            trained[seed] = train_seed(shards, dev_shards, vocabulary, run.model, training, initial_weights)
    return trained


def average_further_seeds(run: Run, trained: Mapping[int, Artifact]) -> dict[int, Artifact]:
    """Average the checkpoints of each further seed's training."""
    return {seed: average.for_item(seed_item(seed))(made, run.averaging) for seed, made in trained.items()}


def further_systems(
    run: Run, own_weights: Artifact, further_weights: Mapping[int, Artifact]
) -> dict[System, tuple[Artifact, ...]]:
    """The weights of each further system: those of one seed, or those of all seeds for the ensemble."""
    if not further_weights:
        return {}
    systems = {seed_item(seed): (weights,) for seed, weights in further_weights.items()}
    by_seed = {run.training.seed: own_weights, **further_weights}
    all_weights = tuple(by_seed[seed] for seed in sorted(by_seed))
    return {**systems, ENSEMBLE: all_weights}


def scores_by_system(
    run: Run, own_scores: Mapping[str, Artifact], further_scores: Mapping[System, Mapping[str, Artifact]]
) -> dict[str, dict[System, Artifact]] | None:
    """The scores of each evaluation set by system, for the report; None if there is only the run's own model."""
    if not further_scores:
        return None
    found = {}
    for name, own_score in own_scores.items():
        found[name] = {seed_item(run.training.seed): own_score}
        for system, scores in further_scores.items():
            found[name][system] = scores[name]
    return found
