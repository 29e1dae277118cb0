"""Export a trained model to a folder for another program: CTranslate2 or Hugging Face Transformers.

``demo@champion`` and ``demo/3`` name versions of the registry, ``demo/translate/test`` the model that translated this
set; any other name is a run, whose newest finished record counts (``flows.runner.named_runs``).
"""

import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flows.inference.load_version import decoding_config
from flows.runner.artifact_names import existing_manifest, is_version, model_manifests
from infra.errors import BadConfiguration, fault_for
from infra.site import Site, open_store
from infra.tracking.model_files import local_folder
from infra.tracking.registry import resolve
from model.config import Decoding, from_json
from model.config.engines import Quantization
from model.config.normalise import Normalise
from model.data.bpe import write_normalising
from model.errors import JobError

Target = Literal["ctranslate2", "huggingface"]


@dataclass(frozen=True)
class TrainedModel:
    """A name, the folders of weights and vocabulary, and the decoding configuration that it was scored with.

    ``normalise`` is how sources were read for the scores; None where the vocabulary says so, as that of a version does.
    """

    name: str
    weights: Path
    vocabulary: Path
    decoding: Decoding
    normalise: Normalise | None = None


def find_trained_model(name: str, site: Site, overrides: Sequence[str] = ()) -> TrainedModel:
    """The model of a run or version. Raises BadConfiguration if it does not exist or its artifacts are missing."""
    if is_version(name):
        version = resolve(site.tracking, name)
        folder = local_folder(site.tracking, version)
        title = f"{version.name}/{version.version}"
        return TrainedModel(title, folder / "weights", folder / "vocabulary", decoding_config(version))
    store = open_store(site)
    arguments = next(iter(model_manifests(store, name, "translate", overrides).values())).arguments
    weights, vocabulary = (
        store.artifact(existing_manifest(store, name, each["artifact"], each["key"])).path()
        for each in (arguments["weights"], arguments["vocabulary"])
    )
    decoding, normalise = (_fields(arguments.get(each)) for each in ("decoding", "normalise"))
    reading = from_json(Normalise, normalise) if normalise else None  # translations made earlier read text as it is
    return TrainedModel(" ".join((name, *overrides)), weights, vocabulary, from_json(Decoding, decoding), reading)


def _fields(form: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of a dataclass among the arguments of an artifact; none if it is not there."""
    return {field: value for field, value in (form or {}).items() if field != "class"}


def export(trained: TrainedModel, to: Target, quantization: Quantization, out: Path, card: str = "") -> None:
    """Write the folder ``out`` atomically; its ``README.md`` begins with the text of the ``card``.

    Raises BadConfiguration if it exists, a library is missing, or the format does not support the model.
    """
    if out.exists():
        raise BadConfiguration(f"{out} exists: remove it, or name another folder with --out")
    if to == "huggingface" and quantization != "float32":
        raise BadConfiguration(f"--quantization is {quantization!r}, allowed is float32 where --to is huggingface")
    partial = out.with_name(f"{out.name}.partial-{uuid.uuid4().hex[:8]}")
    scratch = out.with_name(f"{partial.name}.in")
    partial.mkdir(parents=True)
    try:
        vocabulary = trained.vocabulary
        if trained.normalise:
            vocabulary = scratch / "vocabulary"
            vocabulary.mkdir(parents=True)
            write_normalising(trained.vocabulary, trained.normalise, vocabulary)
        arguments = (trained.name, trained.weights, vocabulary, trained.decoding, partial)
        if to == "ctranslate2":
            from model.export.ctranslate2 import write_folder as write_for_ctranslate2

            write_for_ctranslate2(*arguments, quantization)
        else:
            from model.export.huggingface import write_folder as write_for_transformers

            write_for_transformers(*arguments)
        readme = partial / "README.md"
        readme.write_text("\n".join(filter(None, (card, readme.read_text()))))
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
        shutil.rmtree(scratch, ignore_errors=True)
