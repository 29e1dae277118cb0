"""Open the search engine of a registered version; its CTranslate2 form is kept below the root, in ``ctranslate2/``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flows.inference.version_config import decoding_config
from infra.errors import BadConfiguration
from infra.site import Site
from infra.tracking.model_version import Version
from model.config import Decoding
from model.config.engines import COMPARED, EngineChoice, Quantization

if TYPE_CHECKING:
    from model.decoding.translator import Translator
    from model.export.search_engine import SearchEngine

FORMS = "ctranslate2"


def open_version_engine(
    version: Version,
    folder: Path,
    translator: "Translator",
    site: Site,
    decoding: Decoding,
    choice: EngineChoice,
    quantization: Quantization = "float32",
    n_best: int = 1,
    several_batches: bool = False,
) -> "SearchEngine":
    """The engine of a version whose files are in ``folder``.

    ``decoding`` and ``n_best`` are those of the searches to come. The site's threads compute one batch, or with
    ``several_batches`` one batch each. Raises BadConfiguration if CTranslate2 is asked for and its library cannot be
    loaded.
    """
    from model.export.search_engine import EngineSettings, open_engine

    if choice == "own" and quantization != "float32":
        raise BadConfiguration(f"--quantization is {quantization!r}, allowed is float32 with --engine own")
    workers, threads = (site.threads_each, 1) if several_batches else (1, site.threads_each)
    settings = EngineSettings(
        decoding,
        cache=site.root / FORMS,
        choice=choice,
        quantization=quantization,
        n_best=n_best,
        workers=workers,
        threads=threads,
        lines=dev_lines(version, site),
        compared=decoding_config(version),
    )
    try:
        return open_engine(translator, folder / "weights", folder / "vocabulary", settings)
    except ModuleNotFoundError as error:
        if f"{error.name}".split(".")[0] != "ctranslate2":
            raise
        raise BadConfiguration("ctranslate2 is not installed here: pip install -e '.[ctranslate2]'") from error
    except ImportError as error:
        raise BadConfiguration(f"--engine is 'ctranslate2', and its library cannot be loaded: {error}") from error


def dev_lines(version: Version, site: Site) -> Sequence[str]:
    """Sentences of the version's dev set, evenly spaced; none if the set is not on this machine."""
    key = version.tags.get(f"key.prepare_sets.{version.dev}", "")
    file = site.root / "prepare_sets" / key / "pairs.parquet"
    if not key or not file.is_file():
        return ()
    import pyarrow.parquet as pq

    lines: list[str] = pq.read_table(file, columns=["source"]).column("source").to_pylist()
    return lines[:: max(1, len(lines) // COMPARED)][:COMPARED]
