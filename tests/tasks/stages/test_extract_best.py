"""The translation nearest to its reference, by hand and against sacreBLEU."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sacrebleu

from infra.errors import BadData
from infra.store.store import Artifact
from tasks.stages import extract_best as module
from tasks.stages.extract_best import extract_best, sentence_bleus

PAIRS = pl.DataFrame(
    {
        "pair_id": ["c:3", "c:0", "d:7", "c:1"],
        "corpus": ["c", "c", "d", "c"],
        "source": ["A dog.", "It rains.", "Too long.", "A cat sleeps here."],
        "target": ["Ein Hund.", "Es regnet.", "Zu lang.", "Hier schläft eine Katze."],
    }
)
HYPOTHESES = [
    ["Der Hund.", "Ein Hund.", "Ein Hund!"],
    ["Es regnet."],
    [],
    ["Eine Katze.", "Hier schläft die Katze.", "Die Katze schläft hier."],
]


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Any]:
    """The pairs, and their translations in blocks of two lines."""
    for name in ("clean", "translated", "out"):
        (tmp_path / name).mkdir()
    PAIRS.write_parquet(tmp_path / "clean" / "pairs.parquet")
    found = pl.DataFrame(
        {"pair_id": PAIRS["pair_id"], "source": PAIRS["source"], "hypotheses": HYPOTHESES},
        schema_overrides={"hypotheses": pl.List(pl.String)},
    )
    for number in range(2):
        found.slice(2 * number, 2).write_parquet(tmp_path / "translated" / f"{number:05}.parquet")
    return {
        "out": tmp_path / "out",
        "pairs": Artifact("clean", "c", tmp_path / "clean"),
        "translated": Artifact("translate_text", "t", tmp_path / "translated", facts={"lines": 4}),
    }


def test_text_without_spaces_and_lower_case_are_compared_as_they_are_scored() -> None:
    near, far = "我喜欢这只小狗。", "他们昨天去北京。"
    assert sentence_bleus([far, near], "我很喜欢这只小狗。", "zh-CN")[1] > 40
    assert sentence_bleus([near], "我很喜欢这只小狗。") == [0.0]
    assert sentence_bleus(["der hund schläft hier"], "Der Hund schläft hier", lowercase=True) == [pytest.approx(100)]


@pytest.mark.parametrize("blocks", [1, 100])
def test_the_nearest_translation_is_the_target(
    inputs: dict[str, Any], blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCKS", blocks)
    facts = extract_best.body(**inputs)
    assert pl.read_parquet(inputs["out"] / "pairs.parquet").rows() == [
        ("c:3", "c", "A dog.", "Ein Hund."),
        ("c:0", "c", "It rains.", "Es regnet."),
        ("c:1", "c", "A cat sleeps here.", "Hier schläft die Katze."),
    ]
    taken = [100.0, 100.0, sacrebleu.sentence_bleu("Hier schläft die Katze.", ["Hier schläft eine Katze."]).score]
    first = [
        sacrebleu.sentence_bleu(hypotheses[0], [reference]).score
        for hypotheses, reference in zip(HYPOTHESES, PAIRS["target"], strict=True)
        if hypotheses
    ]
    assert facts == {
        "pairs": 3,
        "untranslated": 1,
        "bleu": pytest.approx(sum(taken) / 3, abs=1e-4),
        "bleu_of_first": pytest.approx(sum(first) / 3, abs=1e-4),
    }
    assert facts["bleu"] > facts["bleu_of_first"]


def test_the_references_follow_the_translations(inputs: dict[str, Any]) -> None:
    alone = extract_best.body(**inputs)
    translations = pl.read_parquet(inputs["out"] / "pairs.parquet")
    facts = extract_best.body(**inputs, references=True)
    assert pl.read_parquet(inputs["out"] / "pairs.parquet").equals(pl.concat([translations, PAIRS]))
    assert facts == {**alone, "pairs": 7, "references": 4}


def test_translations_of_other_pairs_and_a_teacher_that_translates_nothing_are_refused(inputs: dict[str, Any]) -> None:
    blocks = sorted(inputs["translated"].path().glob("*.parquet"))
    whole = [pl.read_parquet(block) for block in blocks]
    whole[0].reverse().write_parquet(blocks[0])
    with pytest.raises(BadData):
        extract_best.body(**inputs)
    for block, frame in zip(blocks, whole, strict=True):
        frame.with_columns(hypotheses=pl.lit([], dtype=pl.List(pl.String))).write_parquet(block)
    with pytest.raises(BadData, match="none of 4"):
        extract_best.body(**inputs)
