"""The embedded corpus: English-German text made by ``demo_grammar``, with planted defects.

``content("demo/train.en")`` gives the bytes of a file; the same bytes on every machine and every Python. Training text
holds ``PAIRS`` pairs, of which ``DEFECTS`` are spoilt, each kind in a known count. Dev and test hold sentences with
combinations of known words (adjective and noun, compound, number) that training text never shows.
"""

from functools import cache
from pathlib import Path
from unicodedata import normalize

from tasks.demo.grammar import Pair, combinations, pair
from tasks.demo.lexicon import Draw

SEED = 1706_03762
PAIRS = 20_000
HELD_OUT = 500
"""Pairs of the dev set, and of the test set."""
RESERVED = {"adjective": 30, "compound": 5, "number": 8}
"""How many combinations of each kind training text must not show."""

DEFECTS: dict[str, int] = {
    "duplicate": 240,
    "empty": 40,
    "no_letters": 40,
    "near_empty": 40,
    "overlong": 40,
    "overlong_word": 30,
    "misaligned": 60,
    "swapped": 60,
    "identical": 40,
    "wrong_language": 40,
    "wrong_script": 30,
    "broken_unicode": 60,
    "leaked": 20,
}
"""Spoilt pairs of the training text, by kind. A filter can reject every one of them."""
BLEMISHES: dict[str, int] = {"white_space": 60, "control": 30, "decomposed": 60, "separator": 20, "carriage_return": 20}
"""Pairs that only need to be normalised."""

_FRENCH = (
    "Le chat dort dans le jardin avec les enfants.",
    "Les enfants sont dans une maison qui est très belle.",
    "La femme est avec le médecin dans la ville.",
    "Pour les voisins, le train est plus rapide que le bus.",
)
_RUSSIAN = (
    "Кошка спит в большом саду.",
    "Дети читают новую книгу в школе.",
    "Сегодня старый учитель покупает хлеб.",
)

Lines = tuple[bytes, bytes]


def _reserved(draw: Draw) -> frozenset[str]:
    chosen: set[str] = set()
    for kind, count in RESERVED.items():
        pool = combinations()[kind]
        while sum(name.startswith(kind) for name in chosen) < count:
            chosen.add(draw.one(pool))
    return frozenset(chosen)


def _sentences(draw: Draw, reserved: frozenset[str], training: int, held_out: int) -> tuple[list[Pair], list[Pair]]:
    """Distinct pairs without and with reserved combinations; no English sentence is in both."""
    known: list[Pair] = []
    unknown: list[Pair] = []
    seen: set[str] = set()
    while len(known) < training or len(unknown) < held_out:
        made = pair(draw)
        side, wanted = (unknown, held_out) if reserved.intersection(made.combined) else (known, training)
        if made.source in seen or made.target in seen or len(side) == wanted:
            continue
        seen.update((made.source, made.target))
        side.append(made)
    return known, unknown


def _lines(made: Pair) -> Lines:
    return made.source.encode(), made.target.encode()


def _broken(draw: Draw, made: Pair) -> Lines:
    """A target whose umlauts went wrong: lost, in Latin-1, or read as Latin-1 and written as UTF-8."""
    source, target = made.source.encode(), f"{made.target[:-1]} für Jörg."
    ways = (
        target.replace("ü", "\ufffd").encode(),
        target.encode("latin-1"),
        target.encode().decode("latin-1").encode(),
    )
    return source, draw.one(ways)


def _spoilt(draw: Draw, kind: str, made: Pair, pool: list[Pair]) -> Lines:
    """``made`` with a defect of this kind; ``pool`` holds good pairs to take from."""
    source, target = _lines(made)
    if kind == "duplicate":
        return _lines(draw.one(pool))
    if kind == "empty":
        return draw.one(((b"", target), (source, b""), (source, b"  \t"), (b"", b"")))
    if kind == "no_letters":
        return source, draw.one((b".", b"...", b"- 1.", b"2017", b"* * *"))
    if kind == "near_empty":
        return draw.one((b"Yes.", b"No.", b"Anna?")), draw.one((b"Ja.", b"Nein.", b"Anna?"))
    if kind == "overlong":
        chain = [draw.one(pool) for _ in range(12)]
        return b" ".join(p.source.encode() for p in chain), b" ".join(p.target.encode() for p in chain)
    if kind == "overlong_word":
        junk = b"www." + b"-".join(word.encode() for word in made.target[:-1].split(" ")) + b"-" + b"x" * 40
        return source, target[:-1] + b" " + junk
    if kind == "misaligned":
        words = len(made.source.split())
        while True:
            other = draw.one(pool)
            if max(words, len(other.target.split())) > 2.5 * min(words, len(other.target.split())):
                return source, other.target.encode()
    if kind == "swapped":
        return target, source
    if kind == "identical":
        return source, source
    if kind == "wrong_language":
        return source, draw.one(_FRENCH).encode()
    if kind == "wrong_script":
        return source, draw.one(_RUSSIAN).encode()
    return _broken(draw, made)


def _blemished(draw: Draw, kind: str, made: Pair) -> Lines:
    """``made`` as it comes from careless files; normalising gives it back."""
    source, target = _lines(made)
    if kind == "white_space":
        return b" " + source.replace(b" ", draw.one((b"  ", b"\t", "\u00a0".encode())), 1), target + b"  "
    if kind == "control":
        return source, target[:-1] + draw.one((b"\x01", b"\x7f", "\u200b".encode(), "\ufeff".encode())) + target[-1:]
    if kind == "decomposed":
        return source, normalize("NFD", made.target).encode()
    if kind == "separator":
        return source, target.replace(b" ", draw.one(("\u2028", "\u0085", "\v")).encode(), 1)
    return source + b"\r", target + b"\r"


def _telling(made: Pair) -> bool:
    """Long enough, and with enough common words, to show the language that it is in."""
    words = made.source.lower().split(" ")
    return len(words) > 4 and sum(word in ("the", "we", "they", "you", "does", "that", "with") for word in words) > 1


@cache
def _files() -> dict[str, bytes]:
    draw = Draw(SEED)
    reserved = _reserved(draw)
    clean, held_out = _sentences(draw, reserved, PAIRS - DEFECTS["duplicate"], 2 * HELD_OUT)
    lines = [_lines(made) for made in clean]
    free = [at for at, made in enumerate(clean) if _telling(made)]
    good = clean[: PAIRS // 2]
    free = [at for at in free if at >= len(good)]

    def take() -> int:
        at = int(draw.one(range(len(free))))
        free[at], free[-1] = free[-1], free[at]
        return free.pop()

    for kind, count in DEFECTS.items():
        for _ in range(count):
            if kind == "leaked":
                lines[take()] = _lines(draw.one(held_out))
            elif kind == "duplicate":
                lines.append(_spoilt(draw, kind, clean[0], good))
            else:
                at = take()
                lines[at] = _spoilt(draw, kind, clean[at], good)
    for kind, count in BLEMISHES.items():
        for _ in range(count):
            at = take()
            lines[at] = _blemished(draw, kind, clean[at])
    for last in range(len(lines) - 1, 0, -1):
        at = draw.one(range(last + 1))
        lines[last], lines[at] = lines[at], lines[last]
    parts: dict[str, list[Lines]] = {
        "train": lines,
        "dev": [_lines(made) for made in held_out[:HELD_OUT]],
        "test": [_lines(made) for made in held_out[HELD_OUT:]],
    }
    return {
        f"demo/{part}.{language}": b"".join(line[side] + b"\n" for line in pairs)
        for part, pairs in parts.items()
        for side, language in enumerate(("en", "de"))
    }


def paths() -> tuple[str, ...]:
    """The files of the corpus: ``demo/train.en`` and so on."""
    return tuple(_files())


def content(path: str) -> bytes:
    """The bytes of one file. KeyError for a path that ``paths`` does not give."""
    return _files()[path]


def write(folder: Path) -> None:
    """Write all files below ``folder``, so that it can serve as a mirror."""
    for path, data in _files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
