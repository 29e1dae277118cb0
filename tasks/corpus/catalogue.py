"""The catalogue of corpora: which files they consist of, and on which terms.

``corpora.tsv`` and ``sets.tsv`` name the files and, in archives, their members; ``files.tsv`` has URLs and checksums.
A file is identified by its path and its checksum, so its URL may change. Mirrors have it under the same path.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from infra.guards.path_names import is_path_name
from model.config.keying import require, require_name, unkeyed, unkeyed_default
from tasks.corpus.noise import RULES
from tasks.tables import read_table

FOLDER = Path(__file__).parent
NOISE = "+"
"""Precedes the name of each noise rule in the name of a set: ``test+caps``."""
EMBEDDED = "embedded:"
"""URLs with this prefix are files of ``tasks.demo``."""
COMPRESSED = (".gz", ".xz", ".bz2", ".zst")
ARCHIVES = (".tgz", ".tar", *(f".tar{packed}" for packed in COMPRESSED), ".zip", ".7z", ".rar")
TABLES = (".csv", ".tsv", ".parquet", ".jsonl", ".tmx")


def text_suffix(name: str) -> str:
    """The suffix of a file name before compression: ``.sgm`` for ``a.sgm.gz``, empty if there is none."""
    name = name.rpartition("/")[2].lower()
    for packed in COMPRESSED:
        name = name.removesuffix(packed)
    base, dot, ending = name.rpartition(".")
    return f"{dot}{ending}" if base else ""


@dataclass(frozen=True)
class File:
    """A file by its relative path, its checksum (sha256, or md5 if only that is published) and its size in bytes.

    An empty ``url`` means that only mirrors have it, ``size`` 0 that its size is not published.
    """

    path: str
    url: str = unkeyed("")
    sha256: str = ""
    md5: str = ""
    size: int = 0

    def __post_init__(self) -> None:
        require(is_path_name(self.path), "file.path", self.path, "a relative path such as corpus/train.en.gz")
        for name, digits in (("sha256", 64), ("md5", 32)):
            value = getattr(self, name)
            fits = value == "" or (len(value) == digits and set(value) <= set("0123456789abcdef"))
            require(fits, f"file.{name}", value, f"{digits} hex digits in lower case, or empty")
        require(self.sha256 != "" or self.md5 != "", f"file.sha256 of {self.path}", "", "a checksum: sha256, else md5")
        require(self.size >= 0, "file.size", self.size, "bytes, or 0 where it is not known")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Text:
    """Lines of text: a file, or one ``member`` of a tar archive.

    The suffix of the file or member gives the format: ``.sgm`` has lines of ``<seg>``; a table (``.csv``, ``.tsv``,
    ``.parquet``, ``.jsonl``) has its text in ``column``, a name or, in ``.csv`` and ``.tsv`` without a row
    of names, a number from 1; for ``.tmx``, ``column`` is the language. ``.gz``, ``.xz``, ``.bz2`` or ``.zst`` may
    follow.
    """

    file: File
    member: str = ""
    column: str = unkeyed_default("")

    def __post_init__(self) -> None:
        name = self.member or self.file.path
        require(self.member == "" or is_path_name(self.member), "text.member", self.member, "a path inside the archive")
        in_archive = self.member != "" or not name.lower().endswith(ARCHIVES)
        require(in_archive, f"text.member of {name}", self.member, "the member of the archive that is the text")
        if text_suffix(name) in TABLES:
            wanted = "a column by name or number, in .tmx a language"
            require(self.column != "", f"text.column of {name}", self.column, wanted)
        else:
            require(self.column == "", f"text.column of {name}", self.column, f"empty where it is none of {TABLES}")


@dataclass(frozen=True)
class Part:
    """Two texts whose lines n translate each other. ``name`` begins every ``pair_id``."""

    name: str
    source: Text
    target: Text

    def __post_init__(self) -> None:
        require_name(self.name, "part.name", ".+ ")


@dataclass(frozen=True)
class Corpus:
    """The training text of a run. Languages are ISO 639-1 codes."""

    name: str
    source_language: str
    target_language: str
    parts: tuple[Part, ...]
    copies: bool = unkeyed_default(True)
    """Whether its licence lets sentences be copied; false keeps them out of MLflow and of model cards."""

    def __post_init__(self) -> None:
        require_name(self.name, "corpus.name", ".+ ")
        names = [part.name for part in self.parts]
        require(len(names) > 0, "corpus.parts", self.parts, "at least one part")
        require(len(set(names)) == len(names), "corpus.parts", names, "parts with different names")


@dataclass(frozen=True)
class EvaluationSet:
    """A dev or test set. ``name`` begins every ``pair_id`` and labels every score.

    A name such as ``test+caps`` or ``test+lower+typos`` is the set ``test`` with the noise of these rules.
    """

    name: str
    source: Text
    target: Text
    copies: bool = unkeyed_default(True)
    """Whether its licence lets sentences be copied."""
    noise_seed: int = unkeyed_default(1)
    """Seed of the noise, if the set has noise."""

    def __post_init__(self) -> None:
        require_name(self.name, "set.name", ".+")
        allowed = f"a set's name, or one with noise: NAME+RULE of the rules {', '.join(RULES)}"
        require(set(self.noise) <= RULES.keys(), "set.name", self.name, allowed)

    @property
    def clean_name(self) -> str:
        """The name of the set without the rules of its noise."""
        return self.name.partition(NOISE)[0]

    @property
    def noise(self) -> tuple[str, ...]:
        """The rules of its noise."""
        return tuple(self.name.split(NOISE)[1:])


def files(corpus: Corpus, sets: tuple[EvaluationSet, ...] = ()) -> tuple[File, ...]:
    """The distinct files that a corpus and its sets need, in order of first use."""
    pairs: tuple[Part | EvaluationSet, ...] = (*corpus.parts, *sets)
    texts = chain.from_iterable((pair.source, pair.target) for pair in pairs)
    return tuple(dict.fromkeys(text.file for text in texts))


def may_copy(arguments: Iterable[Mapping[str, Any]]) -> bool:
    """Whether sentences may be copied, from the canonical arguments of the stages that read the corpus and sets."""
    texts = (of_stage.get(name, {}) for of_stage in arguments for name in ("corpus", "evaluation"))
    return all(text.get("copies", True) for text in texts)


def _texts(row: Mapping[str, str]) -> tuple[Text, Text]:
    """The source and the target that a row names."""
    source, target = (Text(FILES[row[f"{side}_path"]], row[f"{side}_member"]) for side in ("source", "target"))
    return source, target


def _corpora() -> dict[str, Corpus]:
    parts: dict[tuple[str, str, str], list[Part]] = {}
    for row in read_table(FOLDER / "corpora.tsv"):
        parts.setdefault((row["corpus"], row["source"], row["target"]), []).append(Part(row["part"], *_texts(row)))
    return {name: Corpus(name, source, target, tuple(found)) for (name, source, target), found in parts.items()}


def _sets() -> dict[str, dict[str, EvaluationSet]]:
    found: dict[str, dict[str, EvaluationSet]] = {}
    for row in read_table(FOLDER / "sets.tsv"):
        found.setdefault(row["corpus"], {})[row["set"]] = EvaluationSet(row["set"], *_texts(row))
    return found


FILES = {
    row["path"]: File(row["path"], row["url"], row["sha256"], row["md5"], int(row["size"]))
    for row in read_table(FOLDER / "files.tsv")
}
"""By path; an empty column is unknown."""
CORPORA = _corpora()
"""By name. ``wmt14-ende`` has 1,920,209 + 2,399,123 + 201,288 = 4,520,620 pairs; 4,508,785 without those with an empty
side."""
SETS = _sets()
"""Sets by the name of the corpus and of the set, the dev set first. newstest2014 is the edition with English as the
source: ``newstest2014`` is the official evaluation set, with 2,737 pairs for German (sacreBLEU's ``wmt14``), and
``newstest2014_full`` has 3,003 pairs (``wmt14/full``)."""


@dataclass(frozen=True)
class Terms:
    """What the publisher states, as far as it was found; no legal advice."""

    licence: str
    use: str


TERMS = {row["part"]: Terms(row["licence"], row["use"]) for row in read_table(FOLDER / "terms.tsv")}
"""By the name of the part; ``docs/data.md`` says the same. A mirror may have further terms."""
OWN = Terms("not stated", "not stated: the text belongs to the author of the run")
"""Terms of a part that this project does not know."""
