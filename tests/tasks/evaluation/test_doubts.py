"""What is wrong with translations is named; a bad translation of the right set is none of it."""

import random

from tasks.demo import corpus
from tasks.evaluation.doubts import doubts

SOURCES, REFERENCES, OTHERS = (
    corpus.content(f"demo/{name}").decode().splitlines()[:200] for name in ("test.en", "test.de", "dev.de")
)


def bad_translation(line: str, number: int) -> str:
    words = line.split()
    random.Random(number).shuffle(words)
    return " ".join(words[: len(words) // 2])


def test_a_bad_translation_raises_no_doubt() -> None:
    assert not [*doubts([bad_translation(*pair[::-1]) for pair in enumerate(REFERENCES)], REFERENCES, SOURCES)]


def test_text_without_spaces_is_compared_by_its_characters() -> None:
    chance = random.Random(1)
    references = ["".join(chance.choices("我昨天去北京大学图书馆看书他们在公园踢足球", k=20)) for _ in range(100)]
    translations = [line[:6] + line[9:] for line in references]
    assert not [*doubts(translations, references)]
    assert "another order" in " ".join(doubts([*translations[1:], translations[0]], references))


def test_each_mistake_is_named() -> None:
    def found(lines: list[str], sources: list[str] = SOURCES) -> str:
        return " ".join(doubts(lines, REFERENCES, sources))

    bad = [bad_translation(line, number) for number, line in enumerate(REFERENCES)]
    assert "2 of 200 lines are empty, the first is line 4" in found(
        ["" if n in (3, 8) else line for n, line in enumerate(bad)]
    )
    assert "in common with the sources" in found(SOURCES)
    english = [line.replace("The", "A").replace("her", "his") for line in SOURCES]
    assert "languages swapped?" in found(english)
    assert "another order" in found([*bad[1:], bad[0]])
    assert "of another set" in found(OTHERS)
    assert "of another set" in found(OTHERS, [])


def test_lines_that_are_not_utf_8_are_a_doubt() -> None:
    def broken(lines: list[str]) -> list[str]:
        return [f"{line}\ufffd" if n in (4, 6) else line for n, line in enumerate(lines)]

    bad = [bad_translation(line, number) for number, line in enumerate(REFERENCES)]
    for hypotheses, references in ((broken(bad), REFERENCES), (bad, broken(REFERENCES))):
        assert [*doubts(hypotheses, references)] == ["2 of 200 lines are not UTF-8, the first is line 5"]


def test_copied_references_are_a_doubt() -> None:
    bad = [bad_translation(line, number) for number, line in enumerate(REFERENCES)]
    assert [*doubts([*REFERENCES[:101], *bad[101:]], REFERENCES, SOURCES)] == [
        "101 of 200 lines equal their references: were references copied into them?"
    ]
    assert not [*doubts([*REFERENCES[:100], *bad[100:]], REFERENCES, SOURCES)]
