"""Finds registered versions by name and loads them."""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from infra.errors import BadConfiguration, BadData, fault_for
from infra.extras import check_installed
from infra.site import Site
from infra.tracking.model_files import local_folder
from infra.tracking.model_version import PREFERRED, Version
from infra.tracking.registry import resolve, versions
from model.config import Decoding
from model.config.decoding import COMPARED, EngineChoice, Quantization
from model.data.word_splitting import WordSplitting
from model.errors import JobError

if TYPE_CHECKING:
    from model.decoding.search_engine import Opened
    from model.decoding.version_translator import VersionTranslator

FORMS = "ctranslate2"
"""The folder below the root with the CTranslate2 forms of versions."""


def select_versions(names: Sequence[str], site: Site) -> list[Version]:
    """Return the named versions without repeats.

    Without names: the versions with an alias, champions first, else the newest of each model.

    Raises BadConfiguration if there is none.
    """
    if names:
        found = [resolve(site.tracking, name) for name in names]
    else:
        known = versions(site.registry)
        newest = {version.name: version for version in reversed(known)}
        found = [version for version in known if version.aliases] or list(newest.values())
    if not found:
        raise BadConfiguration(
            f"no model is registered in {site.root.absolute()} yet: repro run demo registers one, or set REPRO_ROOT"
        )
    distinct = {version.label: version for version in found}.values()
    return list(distinct) if names else sorted(distinct, key=lambda version: PREFERRED[0] not in version.aliases)


def decoding_config(version: Version) -> Decoding:
    """Return the search settings of the version's dev set; the paper's defaults (§6.1) replace missing tags."""
    settings: dict[str, Any] = {}
    for field in fields(Decoding):  # an earlier release may have stored other fields
        if text := version.tags.get(f"decoding.{field.name}", ""):
            try:
                settings[field.name] = json.loads(text)
            except ValueError:  # a plain word, such as numerics
                settings[field.name] = text
    return Decoding(**settings)


def load_version(
    version: Version, site: Site, engine: EngineChoice = "auto", quantization: Quantization = "float32"
) -> "VersionTranslator":
    """Load a version. Raises BadConfiguration if a library is missing, BadData for damaged files."""
    if engine == "ctranslate2":
        check_installed("ctranslate2", "--engine ctranslate2")
    folder = local_folder(site.tracking, version)
    if splitting := WordSplitting.load(folder / "vocabulary"):
        check_installed(splitting.library, version.label)
    from model.decoding.search_engine import SearchEngine
    from model.decoding.sentence_splitting import DEFAULT_LANGUAGE, splitter
    from model.decoding.translator import Translator
    from model.decoding.version_translator import VersionTranslator

    if engine == "own" and quantization != "float32":
        raise BadConfiguration(f"--quantization is {quantization!r}, allowed is float32 with --engine own")
    try:
        translator = Translator.load(folder / "weights", folder / "vocabulary", site.device, site.threads_each)
    except JobError as error:
        raise fault_for(error.reason, f"{version.label} cannot be loaded: {error}") from error
    except ValueError as error:
        raise BadData(f"{version.label} cannot be loaded: {error}") from error
    decoding = decoding_config(version)

    def open_other() -> "Opened":
        from model.export.open_engine import open_ctranslate2

        try:
            return open_ctranslate2(
                translator,
                folder / "weights",
                folder / "vocabulary",
                site.root / FORMS,
                decoding,
                required=engine == "ctranslate2",
                quantization=quantization,
                workers=site.threads_each,  # each translates its own batch
                lines=dev_lines(version, site),
            )
        except ImportError as error:
            raise BadConfiguration(f"--engine is 'ctranslate2', and its library cannot be loaded: {error}") from error

    longest = translator.longest_source
    return VersionTranslator(
        version.label,
        translator,
        SearchEngine(translator, engine, open_other),
        splitter(version.tags.get("source_language", "") or DEFAULT_LANGUAGE),
        decoding,
        min(longest, int(version.tags.get("max_pieces", longest))),
    )


def dev_lines(version: Version, site: Site) -> Sequence[str]:
    """Return evenly spaced sentences of the version's dev set; none if the set is damaged or not on this machine."""
    key = version.tags.get(f"key.prepare_sets.{version.dev}", "")
    file = site.root / "prepare_sets" / key / "pairs.parquet"
    if not key or not file.is_file():
        return ()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        lines: list[str] = pq.read_table(file, columns=["source"]).column("source").to_pylist()
    except (pa.ArrowException, OSError):
        return ()
    return lines[:: max(1, len(lines) // COMPARED)][:COMPARED]
