"""Each rule removes what it says and nothing else; rewriting text twice changes nothing more."""

import unicodedata

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_text import kept

from model.config.normalise import Normalise
from tasks.cleaning.filters import (
    Distinct,
    Empty,
    Filter,
    Identical,
    InvalidUnicode,
    Length,
    LengthRatio,
    NoLetters,
    OverlongWord,
    Script,
    normalised,
)
from tasks.cleaning.filters import word_count as words_of
from tasks.cleaning.language_filters import Language, Swapped

GOOD = ("A dog runs.", "Ein Hund läuft.")
RULES: list[Filter] = [
    Empty(),
    InvalidUnicode(),
    NoLetters(),
    Length(),
    LengthRatio(),
    OverlongWord(),
    Identical(),
    Script(),
    Language("en", "de"),
    Swapped("en", "de"),
    Distinct(),
]
SPECIAL = "\x00\u2028\u0085\r\n\t\u200b\ufeff\u0301eAß \u212b\ufffd\u3000“«\u1100\u1161\u202e\u200d\ue000"
nasty = st.text(alphabet=st.one_of(st.sampled_from(SPECIAL), st.characters(codec="utf-8")))


def rewritten(normalise: Normalise, text: str) -> str:
    return str(pl.DataFrame({"source": [text]}).select(normalised("source", normalise)).item())


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (Empty(), ("", "Hund"), GOOD),
        (Empty(), ("dog", " \t\u3000"), GOOD),
        (InvalidUnicode(), ("dog", "H\ufffdnd"), ("São João, Â, Ã e â", "naïve café “quoted” 😀 – \t ok")),
        (InvalidUnicode(), ("dog", "H\ue000nd"), GOOD),
        (InvalidUnicode(), ("dog", "H\x00nd"), GOOD),
        (InvalidUnicode(), ("dog", "für".encode().decode("latin-1")), GOOD),
        (InvalidUnicode(), ("dog", "“für”".encode().decode("cp1252", "replace")), GOOD),
        (NoLetters(), ("dog", "* 12 *"), GOOD),
        (NoLetters(), (".", "Hund"), GOOD),
        (Length(2, 3), ("dog", "ein Hund"), ("one two", "eins zwei drei")),
        (Length(2, 3), ("a big old dog", "ein Hund"), GOOD),
        (Length(1, 3, max_chars=10), ("dog", "Hund" * 3), ("dog", "Hund")),
        (LengthRatio(2.0), ("a b", "a b c d e"), ("a b", "a b c d")),
        (LengthRatio(2.0), ("a b c d e", "a b"), GOOD),
        (OverlongWord(5), ("dog", "ein Hunderl"), ("dog", "ein Hunde")),
        (Identical(), ("taxi", "taxi"), ("Taxi", "taxi")),
        (Script(), ("dog", "Собака бежит"), ("α-particles hit", "α-Teilchen treffen")),
        (Script("Latin", "Cyrillic"), ("dog", "Hund"), ("dog", "Собака IBM")),
        (Language("en", "de"), ("Der Hund ist mit mir", "The dog is with me"), ("Der Spiegel", "Der Spiegel")),
        (Language("en", "de"), ("The dog is with me", "Le chien est avec moi"), ("Two lions", "Löwe, Löwin, Möwe")),
        (Language("en", "de"), ("The dog is with me", "L’élève est où? «Les»"), ("Paris", "Über Le Mans et Paris")),
        (Swapped("en", "de"), ("Ich habe Tom gesehen.", "I saw Tom at work."), ("I saw Tom at work.", "Ich sah Tom.")),
        (Swapped("en", "de"), ("Wo ist Tom?", "Where is he?"), ("Der Spiegel", "Tom")),
        (Swapped("en", "de"), ("Der Hund", "The dog"), ("The rain goes away.", "Regen (the rain)")),
        (Language("en", "fr"), ("A boy runs", "Der Hund ist mit mir"), ("A boy runs.", "Un garçon répare la roue.")),
        (Language("en", "es"), ("A dog", "Le chien est avec moi"), ("A dog", "Tengo un perro que ladra mucho.")),
    ],
)
def test_each_rule_removes_what_it_names_and_spares_what_is_right(
    rule: Filter, bad: tuple[str, str], good: tuple[str, str]
) -> None:
    assert kept(rule, [bad, good]) == [False, True]


@given(text=nasty)
@settings(max_examples=200)
def test_rewriting_is_stable_and_removes_what_it_promises(text: str) -> None:
    once = rewritten(Normalise(quotes=True), text)
    assert rewritten(Normalise(quotes=True), once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert not any(unicodedata.category(c) == "Cc" for c in once)
    assert once == once.strip()
    assert "  " not in once
    assert not set(once) & set("“”„«»‘’\u200b\u2028\u0085\ufeff")


@given(text=nasty)
@settings(max_examples=150)
def test_words_are_what_white_space_separates(text: str) -> None:
    counted = pl.DataFrame({"source": [text]}).select(
        words_of("source"), plain=pl.col("source").str.count_matches(r"\S+")
    )
    assert counted["source"].item() == counted["plain"].item()


@given(texts=st.lists(nasty, max_size=5), enabled=st.tuples(*[st.booleans()] * 4))
@settings(max_examples=150)
def test_lines_that_are_spared_would_not_have_changed(texts: list[str], enabled: tuple[bool, bool, bool, bool]) -> None:
    nfc, control, white_space, quotes = enabled
    marks = r"[\p{Cc}--\s]|[\x{AD}\x{200B}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2069}\x{FEFF}]"
    plain = pl.col("source")
    plain = plain.str.replace_all(marks, "") if control else plain
    plain = plain.str.replace_all("[“”„‟«»]", '"').str.replace_all("[‘’‚‛‹›]", "'") if quotes else plain
    plain = plain.str.normalize("NFC") if nfc else plain
    plain = plain.str.replace_all(r"\s+", " ").str.strip_chars() if white_space else plain
    frame = pl.DataFrame({"source": texts}, schema={"source": pl.String})
    rewritten = frame.select(normalised("source", Normalise(nfc, control, white_space, quotes)))
    assert rewritten.to_series().to_list() == frame.select(plain).to_series().to_list()


@given(pairs=st.lists(st.tuples(nasty, nasty), max_size=6))
@settings(max_examples=100)
def test_rules_decide_every_text(pairs: list[tuple[str, str]]) -> None:
    for rule in RULES:
        assert all(isinstance(verdict, bool) for verdict in kept(rule, pairs))


@given(
    pairs=st.lists(st.tuples(st.sampled_from("ab\x00"), st.sampled_from("ab\n")), max_size=12),
    on=st.sampled_from(["pair", "source", "target"]),
)
@settings(max_examples=60)
def test_distinct_keeps_the_first(pairs: list[tuple[str, str]], on: str) -> None:
    values = [{"pair": pair, "source": pair[0], "target": pair[1]}[on] for pair in pairs]
    expected = [value not in values[:at] for at, value in enumerate(values)]
    assert kept(Distinct(on), pairs) == expected  # type: ignore[arg-type]


def test_distinct_tells_pairs_apart_that_only_join_alike() -> None:
    assert kept(Distinct(), [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")]) == [True] * 4
