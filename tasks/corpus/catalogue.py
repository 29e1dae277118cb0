"""The catalogue of corpora: which files they consist of, with URLs and checksums, and on which terms.

Values only. A file is identified by its path and its checksum; its URL may change without changing any key. Mirrors
have the files under the same paths (``multi30k/train.en.gz``).
"""

from dataclasses import dataclass
from itertools import chain

from infra.guards.path_names import is_path_name
from model.config.keying import require, require_name, unkeyed, unkeyed_default

EMBEDDED = "embedded:"
"""URLs with this prefix are files of ``tasks.demo``."""
COMPRESSED = (".gz", ".xz", ".bz2", ".zst")
ARCHIVES = (".tgz", ".tar", *(f".tar{packed}" for packed in COMPRESSED), ".zip", ".7z", ".rar")
TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".tmx")


def text_suffix(name: str) -> str:
    """The suffix of a file name before compression: ``.sgm`` for ``a.sgm.gz``, empty if there is none."""
    for packed in COMPRESSED:
        name = name.removesuffix(packed)
    base, dot, ending = name.rpartition("/")[2].rpartition(".")
    return f"{dot}{ending.lower()}" if base else ""


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
        require(self.sha256 != "" or self.md5 != "", f"file.sha256 of {self.path}", "", "a sum: sha256, else md5")
        require(self.size >= 0, "file.size", self.size, "bytes, or 0 where it is not known")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Text:
    """Lines of text: a file, or one ``member`` of a tar archive.

    The suffix of the file or member gives the format: ``.sgm`` has lines of ``<seg>``; a table (``.csv``, ``.tsv``,
    ``.parquet``, ``.arrow``) has its text in ``column``, a name or, without a row of names, a number from 1; for
    ``.tmx``, ``column`` is the language. ``.gz``, ``.xz``, ``.bz2`` or ``.zst`` may follow.
    """

    file: File
    member: str = ""
    column: str = unkeyed_default("")

    def __post_init__(self) -> None:
        name = self.member or self.file.path
        require(self.member == "" or is_path_name(self.member), "text.member", self.member, "a path inside the archive")
        in_archive = self.member != "" or not name.endswith(ARCHIVES)
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

    def __post_init__(self) -> None:
        require_name(self.name, "corpus.name", ".+ ")
        names = [part.name for part in self.parts]
        require(len(names) > 0, "corpus.parts", self.parts, "at least one part")
        require(len(set(names)) == len(names), "corpus.parts", names, "parts with different names")


@dataclass(frozen=True)
class EvaluationSet:
    """A dev or test set. ``name`` begins every ``pair_id`` and labels every score."""

    name: str
    source: Text
    target: Text

    def __post_init__(self) -> None:
        require_name(self.name, "set.name", ".")


def files(corpus: Corpus, sets: tuple[EvaluationSet, ...] = ()) -> tuple[File, ...]:
    """The distinct files that a corpus and its sets need, in order of first use."""
    pairs: tuple[Part | EvaluationSet, ...] = (*corpus.parts, *sets)
    texts = chain.from_iterable((pair.source, pair.target) for pair in pairs)
    return tuple(dict.fromkeys(text.file for text in texts))


def _demo(name: str, sha256: str) -> Text:
    return Text(File(f"demo/{name}", f"{EMBEDDED}demo/{name}", sha256))


DEMO = Corpus(
    "demo",
    "en",
    "de",
    (
        Part(
            "demo",
            _demo("train.en", "57a73466ec4fa6c104f0df3f10bc26ef340208155c277e1c57399ebaeae98292"),
            _demo("train.de", "c1840bc9cfa2b2d417c3f27d4e0d6517cb57a9a227d87defb1913311bd0150fa"),
        ),
    ),
)
DEMO_DEV = EvaluationSet(
    "dev",
    _demo("dev.en", "771aac1e1d17a4bffbdeb77f443da9a704fd45c5084c56452a840be297531e82"),
    _demo("dev.de", "ea864e2531e94bc0ffba6820ee21a25b56695deea4f7875cd88e29a916fec8b7"),
)
DEMO_TEST = EvaluationSet(
    "test",
    _demo("test.en", "68dff6676b7325441e4df2a23925cbb324293f38cce95fdcd47921839cd76755"),
    _demo("test.de", "41fe59999812da3f798bbf137b9b8a2881b85f588eb092eaab9cf056508a046d"),
)

_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"


def _multi30k(name: str, size: int, sha256: str) -> Text:
    return Text(File(f"multi30k/{name}", f"{_MULTI30K}/{name}", sha256, size=size))


_MULTI30K_TRAIN_EN = _multi30k(
    "train.en.gz", 568929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"
)
_MULTI30K_VAL_EN = _multi30k("val.en.gz", 21650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28")
_MULTI30K_TEST_EN = _multi30k(
    "test_2016_flickr.en.gz", 21077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"
)
MULTI30K_ENDE = Corpus(
    "multi30k-ende",
    "en",
    "de",
    (
        Part(
            "multi30k",
            _MULTI30K_TRAIN_EN,
            _multi30k("train.de.gz", 637044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
        ),
    ),
)
MULTI30K_ENDE_VAL = EvaluationSet(
    "val",
    _MULTI30K_VAL_EN,
    _multi30k("val.de.gz", 24681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
)
MULTI30K_ENDE_TEST = EvaluationSet(
    "test_2016_flickr",
    _MULTI30K_TEST_EN,
    _multi30k("test_2016_flickr.de.gz", 22890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
)
MULTI30K_ENFR = Corpus(
    "multi30k-enfr",
    "en",
    "fr",
    (
        Part(
            "multi30k",
            _MULTI30K_TRAIN_EN,
            _multi30k("train.fr.gz", 604242, "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c"),
        ),
    ),
)
MULTI30K_ENFR_VAL = EvaluationSet(
    "val",
    _MULTI30K_VAL_EN,
    _multi30k("val.fr.gz", 23001, "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9"),
)
MULTI30K_ENFR_TEST = EvaluationSet(
    "test_2016_flickr",
    _MULTI30K_TEST_EN,
    _multi30k("test_2016_flickr.fr.gz", 22310, "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90"),
)


def _sample(name: str, size: int, sha256: str) -> Text:
    return Text(File(f"wmt14_sample/{name}", "", sha256, size=size))


WMT14_SAMPLE_ENDE = Corpus(
    "wmt14-sample-ende",
    "en",
    "de",
    (
        Part(
            "wmt14_sample",
            _sample("train.en.gz", 2877709, "0baeb298ec25ef09c8e0f29b5be4638b2d1f47fe1fdc03cc8196130113e38142"),
            _sample("train.de.gz", 3247415, "73d31374e2f5a82cfaeaecee2c4e19981b1ae205743dce2fc4d8de79caac2aaa"),
        ),
    ),
)
WMT14_SAMPLE_NEWSTEST2013 = EvaluationSet(
    "newstest2013",
    _sample("newstest2013.en.gz", 129323, "fe1ec28570b18fe745a73719f5cab767d277aad2227e995c6db5b9da15e91769"),
    _sample("newstest2013.de.gz", 148049, "5555a367c989238d99ce95fdf47f5dc7e6d2399f07ee902e8434469faa492b63"),
)


def _wmt(where: str, name: str, sha256: str, md5: str, size: int) -> File:
    return File(f"wmt14/{name}", f"{where}/{name}", sha256, md5, size)


EUROPARL_V7 = _wmt(
    "https://www.statmt.org/wmt13",
    "training-parallel-europarl-v7.tgz",
    "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    "c52404583294a1b609e56d45b2ed06f5",
    657632379,
)
COMMON_CRAWL = _wmt(
    "https://www.statmt.org/wmt13",
    "training-parallel-commoncrawl.tgz",
    "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    "7e0acbe86b0d7816300e14650f5b2bd4",
    918311367,
)
NEWS_COMMENTARY_V9 = _wmt(
    "https://www.statmt.org/wmt14",
    "training-parallel-nc-v9.tgz",
    "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    "92e42b68f9d3c2ae9722e6d1c2623e21",
    80418416,
)
GIGA_FREN = _wmt(
    "https://www.statmt.org/wmt10",
    "training-giga-fren.tar",
    "3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
    "",
    2595102720,
)
UN = _wmt(
    "https://www.statmt.org/wmt13",
    "training-parallel-un.tgz",
    "29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
    "",
    2365634246,
)
WMT14_DEV = _wmt("https://www.statmt.org/wmt14", "dev.tgz", "", "88ba3fc60b2278d59277122e1c7dd6e7", 0)
WMT14_TEST = _wmt("https://www.statmt.org/wmt14", "test-filtered.tgz", "", "84c597844c1542e29c2aff23aaee4310", 0)
WMT14_TEST_FULL = _wmt("https://www.statmt.org/wmt14", "test-full.tgz", "", "a8cd784e006feb32ac6f3d9ec7eb389a", 0)


def _part(name: str, archive: File, stem: str, language: str) -> Part:
    """English to ``language``: the members ``stem.en`` and ``stem.<language>``."""
    return Part(name, Text(archive, f"{stem}.en"), Text(archive, f"{stem}.{language}"))


WMT14_ENDE = Corpus(
    "wmt14-ende",
    "en",
    "de",
    (
        _part("europarl", EUROPARL_V7, "training/europarl-v7.de-en", "de"),
        _part("commoncrawl", COMMON_CRAWL, "commoncrawl.de-en", "de"),
        _part("news-commentary", NEWS_COMMENTARY_V9, "training/news-commentary-v9.de-en", "de"),
    ),
)
"""1,920,209 + 2,399,123 + 201,288 = 4,520,620 pairs; 4,508,785 without those with an empty side."""

WMT14_ENFR = Corpus(
    "wmt14-enfr",
    "en",
    "fr",
    (
        _part("europarl", EUROPARL_V7, "training/europarl-v7.fr-en", "fr"),
        _part("commoncrawl", COMMON_CRAWL, "commoncrawl.fr-en", "fr"),
        _part("un", UN, "un/undoc.2000.fr-en", "fr"),
        _part("news-commentary", NEWS_COMMENTARY_V9, "training/news-commentary-v9.fr-en", "fr"),
        Part(
            "giga",
            Text(GIGA_FREN, "giga-fren.release2.fixed.en.gz"),
            Text(GIGA_FREN, "giga-fren.release2.fixed.fr.gz"),
        ),
    ),
)


def _newstest2013(language: str) -> EvaluationSet:
    return EvaluationSet(
        "newstest2013", Text(WMT14_DEV, "dev/newstest2013.en"), Text(WMT14_DEV, f"dev/newstest2013.{language}")
    )


def _newstest2014(name: str, archive: File, folder: str, pair: str, language: str) -> EvaluationSet:
    """The edition whose English side is the source: ``-src.en.sgm`` and ``-ref.<language>.sgm``."""
    stem = f"{folder}/newstest2014-{pair}"
    return EvaluationSet(name, Text(archive, f"{stem}-src.en.sgm"), Text(archive, f"{stem}-ref.{language}.sgm"))


WMT14_ENDE_NEWSTEST2013 = _newstest2013("de")
WMT14_ENDE_NEWSTEST2014 = _newstest2014("newstest2014", WMT14_TEST, "test", "deen", "de")
"""2,737 pairs: filtered, the official set of the evaluation; sacreBLEU's ``wmt14``."""
WMT14_ENDE_NEWSTEST2014_FULL = _newstest2014("newstest2014_full", WMT14_TEST_FULL, "test-full", "deen", "de")
"""3,003 pairs; sacreBLEU's ``wmt14/full``."""
WMT14_ENFR_NEWSTEST2013 = _newstest2013("fr")
WMT14_ENFR_NEWSTEST2014 = _newstest2014("newstest2014", WMT14_TEST, "test", "fren", "fr")
WMT14_ENFR_NEWSTEST2014_FULL = _newstest2014("newstest2014_full", WMT14_TEST_FULL, "test-full", "fren", "fr")


@dataclass(frozen=True)
class Terms:
    """What the publisher states, as far as it was found; no legal advice."""

    licence: str
    use: str


_SHARED_TASKS = "no licence file; released for the shared tasks of WMT"
TERMS = {
    "demo": Terms(
        "part of this project, which has no licence yet",
        "trying the pipeline; a score on it says that the pipeline works",
    ),
    "multi30k": Terms(
        "no licence file; its README provides the data for non-commercial research and/or educational purposes",
        "research and education without commerce: captions of photographs",
    ),
    "europarl": Terms(
        "not stated in the copies; its site says its authors know of no copyright restrictions",
        "research; proceedings of parliament",
    ),
    "commoncrawl": Terms(_SHARED_TASKS, "research; noisy, partly misaligned"),
    "news-commentary": Terms(_SHARED_TASKS, "research"),
    "un": Terms("unknown", "research"),
    "giga": Terms("unknown", "research"),
    "wmt14_sample": Terms(
        "that of its sources: Europarl v7, news sets of WMT, Common Crawl", "small machines; research"
    ),
}
"""By the name of the part; ``docs/data.md`` says the same. A mirror may have further terms."""
OWN = Terms("not stated", "not stated: the text belongs to the author of the run")
"""Terms of a part that this project does not know."""
