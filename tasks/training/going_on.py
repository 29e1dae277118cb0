"""Finds the finished training that a longer one continues, and copies the files that the longer one needs.

    train/KEY/checkpoints/00000060/model.safetensors    of the artifact: weights
    train/KEY.state/state.safetensors, position.json    beside it: Adam's moments; updates, data position, checksums

A call of ``train`` continues a finished training by itself if two conditions hold: only the length differs, and a
longer training from the start would reach the same weights. So neither the rates, nor the batches, nor the kept
checkpoints may depend on the length. A call with ``continued`` (``training.continue``) always continues that training,
perhaps with other rates; both read the same batches.
"""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration, BadData
from infra.site import Site
from infra.store.files import sha256_of, sync, sync_tree
from infra.store.manifest import Manifest
from infra.store.states import state_folder, state_keys
from infra.store.store import Artifact, Store
from model.config import Training
from tasks.engine.keys import differences
from tasks.engine.lookup import Hit, look_up
from tasks.engine.stage import Origin, StageCall

STATE_FILES = ("state.safetensors", "position.json")
LENGTH = ("updates", "epochs", "minutes")
SAME = ("shards", "dev", "vocabulary", "model")
BATCHES = ("seed", "batch_tokens", "batch_sentences", "batching", "target_ends")
SAME_TRAINING = (*BATCHES, "optimizer", "checkpoint_every", "keep_epochs")
"""Settings that a training with ``continued`` must share with the finished training."""


def newest_checkpoint(out: Path) -> int:
    """The update of the newest checkpoint, 0 if there is none."""
    return max((int(path.name) for path in out.glob("checkpoints/*") if path.name.isdigit()), default=0)


def keep_state(out: Path, key: str) -> None:
    """Move the optimizer's state of a finished training out of the folder that becomes its artifact."""
    folder = state_folder(out.with_name(key))
    folder.mkdir(exist_ok=True)
    for name in STATE_FILES:
        path = out / "checkpoints" / f"{newest_checkpoint(out):08d}" / name
        if path.exists():  # else it was moved before this process was interrupted
            path.replace(folder / name)


def origin_of(store: Store, site: Site, call: StageCall, forced: bool) -> Origin | None:
    """The longest finished training that ``call`` continues: by itself (unless ``forced``), or by its ``continued``.

    Raises BadConfiguration if it cannot continue the training in ``continued``.
    """
    keys = [] if forced else state_keys(store, "train")
    found = [origin for key in keys if (origin := _origin(store, site, call, key))]
    found += [_asked_for(store, call, artifact) for artifact in call.arguments.get("continued", ())]
    return max(found, key=lambda origin: origin.done, default=None)


def _asked_for(store: Store, call: StageCall, artifact: Artifact) -> Origin:
    """The training that ``continued`` holds."""
    manifest = artifact.manifest
    name = f"{artifact.stage}-{artifact.key}"
    update = whole_state(store, manifest) if manifest else 0
    if manifest is None or not update:
        raise BadConfiguration(
            f"training.continue is {name}, which left no optimizer state on this machine (an older release made it, or "
            "another machine): train it again, or take its weights alone with training.start"
        )
    theirs = manifest.arguments
    pairs = {name: (call.form[name], theirs[name]) for name in SAME}
    both = (call.form["training"], theirs["training"])
    pairs |= {f"training.{name}": (both[0].get(name), both[1].get(name)) for name in SAME_TRAINING}
    for path, (ours, finished) in pairs.items():
        if changed := differences(ours, finished, path):
            raise BadConfiguration(f"training.continue is {name}, allowed is a training of the same {changed[0]}")
    training: Training = call.arguments["training"]
    folder = state_folder(store.folder(manifest.stage, manifest.key))
    saved = json.loads((folder / "position.json").read_text())["position"]
    reached = {"minutes": saved["seconds"] / 60, "patience": saved["checks_since_best"]}
    reached |= {"epochs": manifest.facts.get("epochs", 0)} if training.epochs else {"updates": update}
    for field, value in reached.items():
        asked = getattr(training, field)
        if asked <= value and (asked or field == "updates"):
            allowed = f"above {value:g}, where {name} ended, which it continues" + "; or 0" * (field != "updates")
            raise BadConfiguration(f"training.{field} is {asked}, allowed is {allowed}")
    return Origin(artifact, update)


def _origin(store: Store, site: Site, call: StageCall, key: str) -> Origin | None:
    """The training under ``key``, if ``call`` is the same but longer."""
    manifest = store.find("train", key)
    if manifest is None or _without_length(manifest.arguments) != _without_length(call.form):
        return None
    theirs = manifest.arguments["training"]
    training: Training = call.arguments["training"]
    shorter = replace(training, **{name: theirs.get(name, 0) for name in LENGTH})
    update = whole_state(store, manifest)
    if not update or not continues(training, shorter, update):
        return None
    found = look_up(store, site, replace(call, arguments={**call.arguments, "training": shorter}))
    return Origin(found.artifact, update) if isinstance(found, Hit) and found.artifact.key == key else None


def _without_length(form: Any) -> dict[str, Any]:
    training = {name: value for name, value in form.get("training", {}).items() if name not in LENGTH}
    return {**form, "training": training}


def whole_state(store: Store, manifest: Manifest) -> int:
    """The last update of a training if its state is on this machine and fits the artifact's weights; else 0."""
    folder = state_folder(store.folder(manifest.stage, manifest.key))
    files = manifest.files
    try:
        record = json.loads((folder / "position.json").read_text())
        update = int(record["position"]["update"])
        best = int(record["position"]["best_update"])
        fits = files[_weights(f"{update:08d}")]["sha256"] == record["sums"]["model.safetensors"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    # The validation after the last update may have found a better checkpoint; only that checkpoint was kept.
    has_best = not best or not files.keys().isdisjoint((_weights(f"{best:08d}"), _weights("best")))
    return update if fits and has_best and (folder / STATE_FILES[0]).exists() else 0


def _weights(checkpoint: str) -> str:
    return f"checkpoints/{checkpoint}/model.safetensors"


def continues(training: Training, shorter: Training, update: int) -> bool:
    """Whether ``training`` has, after ``update``, the final state of ``shorter``, and the checkpoints that it needs."""
    if training.schedule in ("linear", "clock"):  # its rates depend on the length
        return False
    if (training.minutes or math.inf) < (shorter.minutes or math.inf):
        return False
    if training.epochs:
        return 0 < shorter.epochs < training.epochs
    return training.updates > update


def begin_from(origin: Origin, out: Path) -> None:
    """Fill ``out`` as if the training had just saved the origin's last checkpoint; a resumed ``out`` stays.

    Raises BadData if the state beside the artifact is damaged.
    """
    if newest_checkpoint(out) >= origin.done:
        return
    artifact = origin.artifact
    finished = artifact.path()
    partial = out / "checkpoints.partial"
    shutil.rmtree(partial, ignore_errors=True)  # of an interrupted copy
    shutil.copytree(finished / "checkpoints", partial)
    if (partial / "best").exists():
        best = int(json.loads((partial / "best.json").read_text())["update"])
        (partial / "best").rename(partial / f"{best:08d}")
    (partial / "best.json").unlink(missing_ok=True)  # the end of the longer training writes its own
    last = partial / f"{origin.done:08d}"
    for name in STATE_FILES:
        shutil.copy(state_folder(artifact.folder) / name, last)
    for name, expected in json.loads((last / "position.json").read_text())["sums"].items():
        if sha256_of(last / name) != expected:
            state = state_folder(artifact.folder)
            raise BadData(f"{artifact.stage} {artifact.key}: {name} has changed since it was written: remove {state}")
    sync_tree(partial)
    rows = (finished / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text("".join(row for row in rows if "facts" not in json.loads(row)))
    sync(out / "metrics.jsonl")
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    partial.rename(out / "checkpoints")
