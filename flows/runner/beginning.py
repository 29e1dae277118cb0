"""What a run's training begins with: weights of a version, the end of another training, or nothing."""

from flows.runner.artifact_names import model_manifests
from flows.runs import Run
from flows.runs.initial_weights import InitialWeights, initial_weights_of
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.store import Store


def beginning_of(run: Run, site: Site, store: Store) -> InitialWeights | None:
    """What ``training.start`` or ``training.continue_from`` names, None if weights are drawn at random.

    Raises BadConfiguration for a name that is unknown, of another shape, or of several trainings.
    """
    name = run.training.continue_from
    if not name:
        return initial_weights_of(run, site, store)
    found = model_manifests(store, name, "train")
    manifest = found.get("") or next(iter(found.values()))
    if damage := store.damage(manifest):
        raise BadConfiguration(f"training.continue is {name!r}, but that training is damaged: {damage}")
    return InitialWeights(name, continued=(store.artifact(manifest),))
