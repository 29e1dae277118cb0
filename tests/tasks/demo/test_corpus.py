"""The embedded corpus is grammatical, and its training text holds nothing of its dev and test sets."""

from collections import Counter
from pathlib import Path

import pytest

from tasks.demo import corpus, grammar, lexicon
from tasks.demo.grammar import Pair, clause, noun_phrase, pair
from tasks.demo.lexicon import ACC, DAT, GEN, NOM, Draw, number


def lines(name: str) -> list[bytes]:
    return corpus.content(f"demo/{name}").split(b"\n")[:-1]


@pytest.fixture(scope="module")
def made() -> list[Pair]:
    draw = Draw(7)
    return [pair(draw) for _ in range(5000)]


def test_evaluation_text_is_not_in_training_text_except_where_planted() -> None:
    train = Counter(zip(lines("train.en"), lines("train.de"), strict=True))
    sources, targets = {source for source, _ in train}, {target for _, target in train}
    evaluation = [
        pair for name in ("dev", "test") for pair in zip(lines(f"{name}.en"), lines(f"{name}.de"), strict=True)
    ]
    leaked = {(a, b) for a, b in evaluation if a in sources or b in targets}
    assert sum(train[each] for each in leaked) == corpus.DEFECTS["leaked"]
    assert len({source for source, _ in evaluation}) == 2 * corpus.HELD_OUT


def test_evaluation_text_is_made_of_known_words_in_unknown_combinations() -> None:
    known = {word for line in lines("train.en") for word in line.strip(b".?").replace(b",", b"").lower().split()}
    for name in ("dev", "test"):
        words = {word for line in lines(f"{name}.en") for word in line.strip(b".?").replace(b",", b"").lower().split()}
        assert {word for word in words - known if b"-" not in word} == set()
    reserved = corpus._reserved(Draw(corpus.SEED))
    assert len(reserved) == sum(corpus.RESERVED.values())
    compound = next(name for name in sorted(reserved) if name.startswith("compound ")).removeprefix("compound ")
    english = compound.replace("+", " ").encode()
    held_out = set(lines("dev.en") + lines("test.en"))
    assert english not in b"\n".join(line for line in lines("train.en") if line not in held_out)
    assert english in b"\n".join(held_out)


def test_one_english_sentence_has_one_translation(made: list[Pair]) -> None:
    translations: dict[str, set[str]] = {}
    for each in made:
        translations.setdefault(each.source, set()).add(each.target)
    assert all(len(found) == 1 for found in translations.values())


def test_sentences_are_well_formed(made: list[Pair]) -> None:
    for each in made:
        for side in (each.source, each.target):
            assert side[0].isupper()
            assert side[-1] in ".?"
            assert "  " not in side
            assert side[-1] == each.source[-1]


@pytest.mark.parametrize(
    ("english", "forms"),
    [
        ("man", ("der alte Mann", "den alten Mann", "dem alten Mann", "des alten Mannes")),
        ("woman", ("die alte Frau", "die alte Frau", "der alten Frau", "der alten Frau")),
        ("child", ("das alte Kind", "das alte Kind", "dem alten Kind", "des alten Kindes")),
        ("boy", ("der alte Junge", "den alten Jungen", "dem alten Jungen", "des alten Jungen")),
    ],
)
def test_articles_adjectives_and_nouns_are_declined(english: str, forms: tuple[str, ...]) -> None:
    noun = next(noun for noun in lexicon.SIMPLE if noun.english == english)
    draw = Draw(1)
    phrases = [noun_phrase(draw, noun, ("the",), 0.0) for _ in range(300)]
    assert forms in {phrase.german for phrase in phrases if phrase.english == f"the old {english}"}


@pytest.mark.parametrize(
    ("determiner", "english", "case", "german"),
    [
        ("a", "an old dog", ACC, "einen alten Hund"),
        ("a", "a big dog", NOM, "ein großer Hund"),
        ("my", "my big dogs", DAT, "meinen großen Hunden"),
        ("name", "Anna's big dog", NOM, "Annas großer Hund"),
        ("name", "Anna's big dogs", GEN, "Annas großer Hunde"),
        ("a", "three big dogs", DAT, "drei großen Hunden"),
        ("every", "the three dogs", NOM, "die drei Hunde"),
        ("this", "these dogs", ACC, "diese Hunde"),
    ],
)
def test_endings_follow_the_determiner(determiner: str, english: str, case: int, german: str) -> None:
    dog = next(noun for noun in lexicon.SIMPLE if noun.english == "dog")
    draw = Draw(1)
    phrases = (noun_phrase(draw, dog, (determiner,), 0.5) for _ in range(5000))
    assert german in {phrase.german[case] for phrase in phrases if phrase.english == english}


def test_separable_verbs_part_in_main_clauses_and_join_at_the_end() -> None:
    call = next(verb for verb in lexicon.ACTIONS if verb.english[0] == "call")
    draw = Draw(1)
    he = lexicon.SPEAKERS[2]
    made = [clause(draw, he, call) for _ in range(1000)]
    plain = {grammar._plain(each) for each in made}
    last = {grammar._final(each) for each in made}
    assert ("he calls Anna", "er ruft Anna an") in plain
    assert ("he called Anna", "er hat Anna angerufen") in plain
    assert {"Anna anruft", "Anna angerufen hat", "Anna anrufen wird"} <= last


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (2, ("two", "zwei")),
        (16, ("sixteen", "sechzehn")),
        (30, ("thirty", "dreißig")),
        (21, ("twenty-one", "einundzwanzig")),
    ],
)
def test_numbers_are_written_out(n: int, expected: tuple[str, str]) -> None:
    assert number(n) == expected


def test_all_numbers_differ() -> None:
    assert len({number(n)[1] for n in range(2, 100)}) == 98


def test_written_folder_is_a_mirror(tmp_path: Path) -> None:
    corpus.write(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == set(corpus.paths())
    assert (tmp_path / "demo/dev.de").read_bytes() == corpus.content("demo/dev.de")
