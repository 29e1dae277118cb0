"""Exports a registered version to a folder for another program: CTranslate2 or Hugging Face Transformers."""

import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from flows.inference.load_version import decoding_config
from infra.errors import BadConfiguration
from infra.extras import check_installed
from infra.site import Site
from infra.tracking.model_files import local_folder
from infra.tracking.model_version import Version
from model.config.decoding import Quantization
from model.config.keying import require
from model.data.word_splitting import WordSplitting

Target = Literal["ctranslate2", "huggingface"]
LIBRARIES: Mapping[Target, str] = {"ctranslate2": "ctranslate2", "huggingface": "transformers"}


def export(
    version: Version, site: Site, to: Target, quantization: Quantization, out: Path, card: Callable[[str], str] = str
) -> None:
    """Write the folder ``out`` atomically; ``card`` makes its ``README.md`` from the way to load it.

    Raises BadConfiguration if it exists, a library is missing, or the format does not support the model; BadData if
    files have changed since the registration.
    """
    if out.exists():
        raise BadConfiguration(f"{out} exists: remove it, or name another folder with --out")
    if to == "huggingface" and quantization != "float32":
        raise BadConfiguration(f"--quantization is {quantization!r}, allowed is float32 where --to is huggingface")
    check_installed(LIBRARIES[to], f"the format {to}")
    from model.decoding.sentence_splitting import DEFAULT_LANGUAGE

    folder = local_folder(site.tracking, version)
    partial = out.with_name(f"{out.name}.partial-{uuid.uuid4().hex[:8]}")
    partial.mkdir(parents=True)
    language = version.tags.get("source_language", "") or DEFAULT_LANGUAGE
    arguments = (version.label, folder / "weights", folder / "vocabulary", decoding_config(version), partial)
    try:
        if to == "ctranslate2":
            from model.export.ctranslate2 import write_folder as write_for_ctranslate2

            splitting = WordSplitting.load(folder / "vocabulary")
            by = splitting.by if splitting else ""
            require(by != "spacy", "vocabulary.tokens", by, "bpe, characters or words: such a folder is without spaCy")
            write_for_ctranslate2(*arguments, quantization, language)
        else:
            from model.export.huggingface import write_folder as write_for_transformers

            write_for_transformers(*arguments, language)
        readme = partial / "README.md"
        readme.write_text(card(readme.read_text()))
        partial.rename(out)
    except ValueError as error:
        raise BadConfiguration(f"{version.label} cannot be exported to {to}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
