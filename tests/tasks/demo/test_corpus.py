"""The embedded corpus: its training text holds nothing of its dev and test sets."""

from collections import Counter

from tasks.demo import corpus


def lines(name: str) -> list[bytes]:
    return corpus.content(f"demo/{name}").split(b"\n")[:-1]


def test_evaluation_text_is_not_in_training_text_except_where_planted() -> None:
    train = Counter(zip(lines("train.en"), lines("train.de"), strict=True))
    sources, targets = {source for source, _ in train}, {target for _, target in train}
    evaluation = [
        pair for name in ("dev", "test") for pair in zip(lines(f"{name}.en"), lines(f"{name}.de"), strict=True)
    ]
    leaked = {(a, b) for a, b in evaluation if a in sources or b in targets}
    assert sum(train[each] for each in leaked) == 20
    assert len({source for source, _ in evaluation}) == 2 * 500


def test_evaluation_text_is_made_of_known_words_in_unknown_combinations() -> None:
    known = {word for line in lines("train.en") for word in line.strip(b".?").replace(b",", b"").lower().split()}
    for name in ("dev", "test"):
        words = {word for line in lines(f"{name}.en") for word in line.strip(b".?").replace(b",", b"").lower().split()}
        assert {word for word in words - known if b"-" not in word} == set()
