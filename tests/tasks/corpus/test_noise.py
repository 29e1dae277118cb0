"""Noise is the same on every machine, changes what its rule says, and is refused where it makes no sense."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.corpus.noise import NO_NOISE, RULES, TYPO_SHARE, Augment, noised

SOURCE = "\"It's\" the tall man's house, near the street."
TARGET = "„Es“ ist das Haus des großen Mannes, an der Straße."
LINES = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize(
    ("rule", "source", "target"),
    [
        ("caps", "\"IT'S\" THE TALL MAN'S HOUSE, NEAR THE STREET.", TARGET.upper()),
        ("lower", "\"it's\" the tall man's house, near the street.", TARGET),
        ("typos", "\"It's\" the tall man's houe, ear the street.", TARGET),
        ("nopunct", SOURCE[:-1], TARGET[:-1]),
        ("emoji", f"{SOURCE} 🔥", f"{TARGET} 🔥"),
        ("url", f"{SOURCE} https://example.org/306127", f"{TARGET} https://example.org/306127"),
        ("nbsp", "\"It's\"\u00a0the tall man's house, near the street.", TARGET),
        ("quotes", "„It‚s„ the tall man‹s house, near the street.", TARGET),
    ],
)
def test_each_rule_makes_this_line_so_on_every_machine(rule: str, source: str, target: str) -> None:
    assert noised((rule,), 1, "toy:7", SOURCE, TARGET) == (source, target)


@given(LINES, LINES, st.integers(0, 9))
def test_typos_and_odd_characters_leave_the_target_and_others_end_both_sides_alike(s: str, t: str, seed: int) -> None:
    made = {rule: noised((rule,), seed, "toy:1", s, t) for rule in RULES}
    assert all(made[rule][1] == t for rule in ("lower", "typos", "nbsp", "quotes"))
    for rule in ("emoji", "url"):
        assert [side.rpartition(" ")[::2] for side in made[rule]] == [
            (s, end := made[rule][0].split(" ")[-1]),
            (t, end),
        ]
    assert unicodedata.normalize("NFKC", made["nbsp"][0]) == unicodedata.normalize("NFKC", s)
    assert noised(("lower", "nbsp"), seed, "toy:1", s, t) == noised(("nbsp",), seed, "toy:1", s.lower(), t)


def test_typos_are_in_about_their_share_of_words() -> None:
    words = [f"Wort{chr(97 + n % 26)}haus" for n in range(4_000)]
    wrong, _ = noised(("typos",), 1, "toy:1", " ".join(words), "")
    changed = sum(a != b for a, b in zip(words, wrong.split(), strict=True))
    assert 0.85 * TYPO_SHARE < changed / len(words) < 1.15 * TYPO_SHARE


def test_a_share_of_the_pairs_has_a_copy_by_seed_whatever_its_neighbours_are() -> None:
    pairs = [(f"toy:{n}", f"the man {n} walks.", f"der Mann {n} geht.") for n in range(2_000)]
    augment = Augment(caps=0.1, typos=0.5)
    copies = [copy for pair in pairs for copy in augment.copies(*pair)]
    caps = [copy for copy in copies if copy[0].endswith("+caps")]
    assert abs(len(caps) - 200) < 45
    assert 0.7 * 500 < len(copies) - len(caps) < 1_000, "some pairs get no typo"
    assert caps[0][1] == caps[0][1].upper()
    assert copies == [copy for pair in pairs[::-1] for copy in augment.copies(*pair)[::-1]][::-1]
    assert copies != [copy for pair in pairs for copy in Augment(caps=0.1, typos=0.5, seed=2).copies(*pair)]
    assert not NO_NOISE.copies(*pairs[0])
    assert not Augment(caps=1).copies("toy:1", "A 1", "B 1"), "a pair that the rule leaves as it is has no copy"


@pytest.mark.parametrize("share", [1.5, -0.1, float("nan")])
def test_other_shares_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"augment\.typos is .*, allowed is a share of the pairs, from 0 to 1"):
        Augment(typos=share)
