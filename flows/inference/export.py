"""A trained model for other programs: which weights, vocabulary and search the words mean, and a folder of its own.

``demo@champion`` and ``demo/3`` are versions of the registry; any other word is a run, of which the newest record
counts that reached its translations.
"""

import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flows.inference.version_config import decoding_config
from flows.runner import records
from infra.errors import BadConfiguration, fault_for
from infra.site import Site, open_store
from infra.store.local import Store
from infra.tracking.model_files import local_folder
from infra.tracking.registry import resolve
from model.config import Decoding, from_json
from model.errors import JobError

Target = Literal["ctranslate2", "huggingface"]
Quantization = Literal["float32", "int8"]


@dataclass(frozen=True)
class TrainedModel:
    """A name, the folders of weights and vocabulary, and the search that the model was scored with."""

    name: str
    weights: Path
    vocabulary: Path
    decoding: Decoding


def find_trained_model(words: str, site: Site) -> TrainedModel:
    """The trained model that the words mean. Raises BadConfiguration where there is none, or it is gone."""
    if "@" in words or "/" in words:
        version = resolve(site.tracking, words)
        folder = local_folder(site.tracking, version)
        name = f"{version.name}/{version.version}"
        return TrainedModel(name, folder / "weights", folder / "vocabulary", decoding_config(version))
    store = open_store(site)
    store.receive(records.record_folder(words))
    keys = records.last_keys(site.root, words, "translate")
    if not keys:
        raise BadConfiguration(f"{words!r} has translated nothing here: run it, or name a version as in demo@champion")
    manifest = store.manifest("translate", next(iter(keys.values())))
    if manifest is None:
        raise BadConfiguration(f"how {words!r} was searched was told by its translations, which are not there any more")
    told = manifest.arguments
    weights, vocabulary = (_folder(words, store, told[name]) for name in ("weights", "vocabulary"))
    decoding = from_json(Decoding, {name: value for name, value in told["decoding"].items() if name != "class"})
    return TrainedModel(words, weights, vocabulary, decoding)


def _folder(words: str, store: Store, form: Mapping[str, str]) -> Path:
    manifest = store.manifest(form["artifact"], form["key"])
    if manifest is None:
        place = store.folder(form["artifact"], form["key"])
        raise BadConfiguration(f"{words!r} was made from {place}, but that artifact is not there")
    return store.artifact(manifest).path()


def export(trained: TrainedModel, to: Target, quantization: Quantization, out: Path) -> None:
    """Write the folder ``out``, whole or not at all.

    Raises BadConfiguration where it is there already, a library is missing, or the format has no such model.
    """
    if out.exists():
        raise BadConfiguration(f"{out} is there already: remove it, or name another folder with --out")
    if to == "huggingface" and quantization != "float32":
        raise BadConfiguration(f"--quantization is {quantization!r}, allowed is float32 where --to is huggingface")
    partial = out.with_name(f"{out.name}.partial-{uuid.uuid4().hex[:8]}")
    partial.mkdir(parents=True)
    try:
        given = (trained.name, trained.weights, trained.vocabulary, trained.decoding, partial)
        if to == "ctranslate2":
            from model.export.ctranslate2 import write_folder as write_for_ctranslate2

            write_for_ctranslate2(*given, quantization)
        else:
            from model.export.huggingface import write_folder as write_for_transformers

            write_for_transformers(*given)
        partial.rename(out)
    except ModuleNotFoundError as error:
        library = f"{error.name}".split(".")[0]
        if library not in ("ctranslate2", "transformers"):
            raise
        raise BadConfiguration(f"{library} is not installed here: pip install -e '.[{to}]'") from error
    except JobError as error:
        raise fault_for(error.reason, f"{error}") from error
    except ValueError as error:
        raise BadConfiguration(f"{trained.name} cannot be exported to {to}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
