"""Load registered versions as one translator: a model, or an ensemble by the mean of their probabilities."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import BadConfiguration
from infra.site import Site
from infra.tracking.model_files import files_digest, local_folder
from infra.tracking.model_version import Version

if TYPE_CHECKING:
    from model.decoding.translator import Translator


def load_translator(versions: Sequence[Version], site: Site) -> tuple["Translator", Path]:
    """Load versions, of which several are an ensemble; return the first one's folder too.

    Raises BadConfiguration unless they share one vocabulary and read sources with the same special tokens.
    """
    folders = [local_folder(site.tracking, version) for version in versions]
    first, folder = versions[0], folders[0]
    for other, its_folder in zip(versions[1:], folders[1:], strict=True):
        _check_same_vocabulary(first, folder, other, its_folder)
    from model.decoding.translator import Translator

    others = [each / "weights" for each in folders[1:]]
    try:
        paths, graphs = (folder / "weights", folder / "vocabulary"), site.search_graphs
        translator = Translator.load(*paths, site.device, site.threads_each, others, graphs)
    except ValueError as error:
        names = ", ".join(f"{version.name}/{version.version}" for version in versions)
        raise BadConfiguration(f"--model names {names}, which cannot translate together: {error}") from error
    return translator, folder


def _check_same_vocabulary(first: Version, folder: Path, other: Version, its_folder: Path) -> None:
    names = f"{first.name}/{first.version} and {other.name}/{other.version}"
    advice = "an ensemble needs versions of one vocabulary and one pair of languages"
    digests = [files_digest(each / "vocabulary")[:8] for each in (folder, its_folder)]
    if digests[0] != digests[1]:
        raise BadConfiguration(f"--model names {names}, whose vocabularies differ ({' and '.join(digests)}): {advice}")
    for side in ("source", "target"):
        languages = [version.tags.get(f"{side}_language", "") for version in (first, other)]
        if languages[0] != languages[1] and all(languages):
            raise BadConfiguration(
                f"--model names {names}, whose {side} languages differ ({' and '.join(languages)}): {advice}"
            )
