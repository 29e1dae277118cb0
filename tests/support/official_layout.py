"""Small stand-ins for all official WMT14 archives, En-De and En-Fr: their names, members and order, made-up content.

The catalogue knows the real archives by their sums, which no stand-in can have. So a test gives the run's files the
sums of its stand-ins (``pinned``); the code that checks sums stays as it is, and no setting of the project
does the like. Their addresses go, so that no test asks the real servers.
"""

import gzip
import hashlib
import io
import tarfile
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from tasks.corpus.catalogue import File

T = TypeVar("T")
LINES = {"europarl-v7": 3_000, "commoncrawl": 2_000, "news-commentary-v9": 1_000}
MORE_LINES = {"un": 1_500, "giga": 1_500}
"""Of En-Fr alone."""
WORDS = 20_000
NEWSTEST = {"test-filtered": 30, "test-full": 40}
LETTERS = np.array(list("abcdefghijklmnoprstuvw"))


def archives(language: str = "de") -> dict[str, bytes]:
    """By path in a mirror: all that the runs from English to ``language`` (de or fr) name."""
    random = np.random.default_rng(14)
    letters = random.choice(LETTERS, size=(WORDS, 8))
    words = ["".join(row[:length]) for row, length in zip(letters, random.integers(3, 9, WORDS), strict=True)]

    def text(lines: int) -> bytes:
        drawn = random.integers(0, WORDS, size=(lines, 14))
        return "".join(f"{' '.join(words[n] for n in row).capitalize()}.\n" for row in drawn).encode()

    def sides(stem: str, lines: int, languages: tuple[str, ...] = (language, "en")) -> dict[str, bytes]:
        return {f"{stem}.{each}": text(lines) for each in languages}

    def others(stem: str) -> dict[str, bytes]:
        """The archives hold more languages than are asked for, before and behind."""
        return sides(f"{stem}.cs-en", 5, ("cs", "en"))

    pair = f"{language}-en"
    europarl, crawl, news = "training/europarl-v7", "commoncrawl", "training/news-commentary-v9"
    dev = {name: data for stem in ("dev/newstest2012", "dev/newstest2013") for name, data in sides(stem, 30).items()}
    both = {
        "wmt14/training-parallel-europarl-v7.tgz": _tar(
            others(europarl) | sides(f"{europarl}.{pair}", LINES["europarl-v7"])
        ),
        "wmt14/training-parallel-commoncrawl.tgz": _tar(
            others(crawl)
            | {f"commoncrawl.{pair}.annotation": b"x\n"}
            | {
                # Inside the lines stand the ends that must not end them.
                name: data.replace(b" ", "\u2028".encode(), 3).replace(b" ", "\x85".encode(), 2)
                for name, data in sides(f"{crawl}.{pair}", LINES["commoncrawl"]).items()
            }
        ),
        "wmt14/training-parallel-nc-v9.tgz": _tar(
            others(news) | sides(f"{news}.{pair}", LINES["news-commentary-v9"]), leading="./"
        ),
        "wmt14/dev.tgz": _tar(dev | {"dev/newstest2013-src.en.sgm": _sgm("src", b"x\n")}),
        "wmt14/test-filtered.tgz": _tar(_newstest2014("test", language, text(NEWSTEST["test-filtered"]))),
        "wmt14/test-full.tgz": _tar(_newstest2014("test-full", language, text(NEWSTEST["test-full"]))),
    }
    if language == "de":
        return both
    giga = sides("giga-fren.release2.fixed", MORE_LINES["giga"])
    return both | {
        "wmt14/training-parallel-un.tgz": _tar(
            sides("un/undoc.2000.es-en", 5) | sides(f"un/undoc.2000.{pair}", MORE_LINES["un"])
        ),
        "wmt14/training-giga-fren.tar": _tar(
            {f"{name}.gz": gzip.compress(data) for name, data in giga.items()}, mode="w"
        ),
    }


def pinned(value: T, archives: dict[str, bytes]) -> T:
    """``value`` (a run, a corpus) with the sums and sizes of these archives in place of the official ones."""
    if isinstance(value, File):
        data = archives[value.path]
        sums: dict[str, Any] = {"md5": hashlib.md5(data).hexdigest()}
        if value.sha256:
            sums = {"sha256": hashlib.sha256(data).hexdigest(), "md5": ""}
        return replace(value, **sums, url="", size=len(data) if value.size else 0)
    if isinstance(value, tuple):
        return tuple(pinned(part, archives) for part in value)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: pinned(getattr(value, each.name), archives) for each in fields(value)})
    return value


def _newstest2014(folder: str, language: str, lines: bytes) -> dict[str, bytes]:
    stem = f"{folder}/newstest2014-{language}en"
    sides = [(kind, each) for kind in ("src", "ref") for each in (language, "en")]
    return {f"{stem}-{kind}.{each}.sgm": _sgm(kind, lines) for kind, each in sides}


def _sgm(kind: str, lines: bytes) -> bytes:
    """As it was published: no well-formed XML, for a bare ``&`` stands in it."""
    segments = "".join(f'<seg id="{n}">{line} &</seg>\n' for n, line in enumerate(lines.decode().splitlines(), 1))
    head = f'<{kind}set setid="newstest2014" srclang="any">\n<doc docid="1">\n<p>\n'
    return f"{head}{segments}</p>\n</doc>\n</{kind}set>\n".encode()


def _tar(members: dict[str, bytes], leading: str = "", mode: Literal["w", "w:gz"] = "w:gz") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(f"{leading}{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()
