"""Finds artifacts by readable names: ``demo/clean`` is the newest artifact of the stage clean of the run demo.

``demo`` names all artifacts of the run, ``demo/score`` those of one stage, ``demo/score/test`` that of one item.
``named_runs`` decides which records of the run count. A number after the slash names a model version: ``demo/3``.
``system:google`` names the artifacts of translations by another system (``systems``).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from flows.reproduce import STAGES
from flows.runner import records
from flows.runner.find_run import is_file, recorded_name, split_name
from flows.runner.named_runs import NamedRun, name_run, same_object
from flows.runner.recorded_runs import read_headers, read_runs, run_names
from flows.runner.systems import SYSTEM, foreign_scores, system_scores
from flows.runs.overrides import as_options
from flows.runs.unknown_names import did_you_mean
from infra.errors import BadConfiguration
from infra.store.manifest import Manifest
from infra.store.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArtifactName:
    """A run as its records name it, a stage and an item; "" stands for all."""

    run: str
    stage: str = ""
    item: str = ""
    asked: str = field(default="", compare=False)
    """The run as the user wrote it, such as ``FILE.py:NAME``."""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.run, self.stage, self.item)))

    def covers(self, other: "ArtifactName") -> bool:
        """Whether the name means ``other``, perhaps among more artifacts."""
        return self.run == other.run and self.stage in ("", other.stage) and self.item in ("", other.item)


def parse_name(text: str) -> ArtifactName:
    """Parse ``RUN``, ``RUN/STAGE`` or ``RUN/STAGE/ITEM``; RUN may be ``FILE.toml`` or ``FILE.py:NAME``.

    Raises BadConfiguration for an unknown stage, a stage without a run, and a file without that run.
    """
    run, _, place = recorded_name(text).partition("/")
    stage, _, item = place.partition("/")
    if text and not run:
        raise BadConfiguration(f"{text!r} names no run, allowed is a name such as demo/clean")
    if stage.isdecimal():
        allowed = f"the whole one, {run}/{stage}" if item else f"a run, such as {run}, or a stage of it"
        raise BadConfiguration(f"{text!r} names {'a part of ' * bool(item)}a version, allowed here is {allowed}")
    check_stage(stage, f" in {text!r}")
    return ArtifactName(run, stage, item, split_name(text)[0])


def check_stage(name: str, where: str = "") -> None:
    """Raise BadConfiguration for an unknown stage; "" is allowed."""
    if name and name not in STAGES:
        hint = did_you_mean(name, STAGES) or ","
        raise BadConfiguration(f"unknown stage {name!r}{where}{hint} known are: {', '.join(STAGES)}")


def named_with_settings(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse run and overrides of ``demo`` or ``demo --set model.p_drop=0.2``. Raises BadConfiguration."""
    run, *overrides = (part.strip() for part in text.split(" --set "))
    if not run or (" " in run and not is_file(run)):
        raise BadConfiguration(f"{text!r} is named, allowed is a run, perhaps with settings: 'demo --set FIELD=VALUE'")
    return run, tuple(overrides)


def is_version(text: str) -> bool:
    """Whether the text names a model version (``demo@champion``, ``demo/3``) and no run or artifact."""
    run, place = split_name(text)
    return "@" in (place if is_file(run) else text) or place[1:].isdecimal()


def find_artifacts(store: Store, text: str, overrides: Sequence[str] = ()) -> dict[ArtifactName, str]:
    """Find the keys of all artifacts that the text names, in the order of the stages; "" means every run.

    Warns if the run has overrides that the user did not ask for. An artifact may have been removed since. Raises
    BadConfiguration if no record has such an artifact.
    """
    if text.startswith(SYSTEM):
        systems = system_scores(store, text).values()
        made = [*(each.score for each in systems), *(each.translations for each in systems)]
        return {ArtifactName(text, each.stage, each.item): each.key for each in made}
    wanted = parse_name(text)
    records.receive_records(store, wanted.run)
    found: dict[ArtifactName, str] = {}
    for run in [wanted.run] if text else run_names(store.root):
        named = _name_run(store, run, overrides, wanted.asked)
        known = {ArtifactName(run, *place): key for place, key in named.artifacts.items()}
        chosen = {name: key for name, key in known.items() if not text or wanted.covers(name)}
        if text and not chosen:
            there = ", ".join(map(str, known)) or _others_on_record(store, run, as_options(overrides))
            raise BadConfiguration(f"{text!r}{as_options(overrides)} has no artifact on record here, there is: {there}")
        found |= chosen
    return found


def model_manifests(store: Store, text: str, stage: str, overrides: Sequence[str] = ()) -> dict[str, Manifest]:
    """Find the manifests of one stage by item, for the model that ``RUN``, ``RUN/STAGE`` or ``RUN/STAGE/ITEM`` names.

    Raises BadConfiguration if the text names another stage, no finished run has the stage, or an artifact is missing.
    """
    name = parse_name(text)
    if name.stage not in ("", stage):
        raise BadConfiguration(f"{text!r} is an artifact of {name.stage}, allowed is a run or {name.run}/{stage}")
    records.receive_records(store, name.run)
    named = _name_run(store, name.run, overrides, name.asked)
    keys = {item: key for item, key in named.of_model(stage).items() if name.item in ("", item)}
    if not keys:
        scored = [each.name for each in foreign_scores(store)] if stage == "score" else []
        hint = did_you_mean(f"{SYSTEM}{text}", scored, 0.9) or ":"
        made = f"no artifact of {stage} from a finished run{as_options(overrides) or ' without --set'} here"
        raise BadConfiguration(f"{text!r} has {made}{hint} run it, or name a version as in demo@champion")
    return {item: existing_manifest(store, text, stage, key) for item, key in keys.items()}


def existing_manifest(store: Store, text: str, stage: str, key: str) -> Manifest:
    """Find the manifest of an artifact that ``text`` needs. Raises BadConfiguration if it is missing."""
    if manifest := store.find(stage, key):
        return manifest
    raise BadConfiguration(f"{text!r} needs {store.address(stage, key)}, which is missing: run it again")


def _name_run(store: Store, run: str, overrides: Sequence[str], asked: str) -> NamedRun:
    """Find the records that the run's name means; warns if they have overrides that the user did not ask for."""
    named = name_run(same_object(read_runs(store.root, run), asked), run, overrides)
    if named.remark:
        log.warning("%s", named.remark)
    return named


def _others_on_record(store: Store, run: str, asked: str) -> str:
    """List other settings of the run on record than ``asked``; without any, list other recorded runs."""
    settings = dict.fromkeys(as_options(each.overrides) for each in read_headers(store.root, run) if not each.is_trial)
    named = [f"{run}{each}" for each in settings if each != asked]
    return ", ".join(named or (each for each in run_names(store.root) if each != run)) or "no other run"
