"""Texts whose lines do not correspond from some line on are recognised; real corpora raise no alarm."""

import gzip
import os
import random
from pathlib import Path

import polars as pl
import pytest

from tasks.cleaning.line_shift import find_line_shift
from tasks.demo import corpus as demo_corpus

CORPORA = Path(os.environ.get("REPRO_MIRRORS", "").split(" ")[0])
SOURCES = sorted(CORPORA.glob("*/*.en.gz"))


def lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]


def of_demo() -> list[list[str]]:
    return [
        demo_corpus.content(f"demo/train.{side}").decode(errors="replace").split("\n")[:-1] for side in ("en", "de")
    ]


@pytest.mark.parametrize("at", [0, 1, 3_000])
@pytest.mark.parametrize("side", [0, 1])
def test_a_lost_line_is_found(at: int, side: int) -> None:
    texts = of_demo()
    assert not find_line_shift(*map(pl.Series, texts))
    del texts[side][at]
    texts[1 - side].pop()
    found = find_line_shift(*map(pl.Series, texts))
    assert found
    assert found.by == (1 if side == 0 else -1)
    assert abs(found.first - at - 1) < 30


@pytest.mark.parametrize("texts", [[], ["a"] * 20, ["a"] * 1_000, ["", "x y z?"] * 30])
def test_texts_without_any_sign_raise_no_alarm(texts: list[str]) -> None:
    assert not find_line_shift(*[pl.Series(texts, dtype=pl.String)] * 2)


def test_the_few_lines_after_the_last_block_say_nothing() -> None:
    english, german = of_demo()
    assert not find_line_shift(pl.Series(english[:2_001]), pl.Series(german[4_000:6_001]))


@pytest.mark.slow
@pytest.mark.skipif(not SOURCES, reason="REPRO_MIRRORS names no corpora")
def test_real_corpora_raise_no_alarm_and_planted_shifts_are_found() -> None:
    for source in SOURCES:
        for language in ("de", "fr"):
            if (target := source.with_name(source.name.replace(".en.", f".{language}."))).exists():
                assert not find_line_shift(pl.Series(lines(source)), pl.Series(lines(target))), target.name
    chance = random.Random(1)
    names = ("multi30k/train", "wmt14_sample/train", "wmt14_sample/tatoeba-2018-05")
    found = 0
    for trial in range(20):
        texts = [lines(CORPORA / f"{names[trial % 3]}.{side}.gz") for side in ("en", "de")]
        changed, other = chance.sample(texts, 2)
        at = chance.randrange(len(changed))
        if chance.random() < 0.5:
            del changed[at]
            other.pop()
        else:
            changed.insert(at, chance.choice(changed))
            changed.pop()
        shift = find_line_shift(*map(pl.Series, texts))
        found += shift is not None and abs(shift.first - at) < 100
    assert found >= 19
