"""The model card as Markdown: front matter that a hub reads, foreign text that stays text, licences as documented."""

from pathlib import Path

import polars as pl
import yaml

from infra.store.manifest import Manifest
from tasks.registration.model_card import as_markdown, model_card, scores_in_tags

EVIL = "</h1><script>alert(1)</script> `a` | *b*\n# c\n---\nlicense: mit"
TAGS = {
    "val.bleu": "41.47",
    "val.bleu_low": "39.81",
    "val.bleu_high": "43.14",
    "val.sentences": "1014",
    "test.bleu": "39.18",
    "test.chrf": "60.5",
    "test.sentences": "1000",
    "dev_set": "val",
}
LOWER = {"bleu_lc": "40.78", "source_input": "lower-cased, Moses tokens"}


def manifest(stage: str, arguments: dict[str, object], facts: dict[str, object]) -> Manifest:
    return Manifest(stage, "k", 1, "", arguments, {}, "", facts, {}, 90.0, {"torch": "2.13.0"})


def test_a_version_that_writes_lower_case_is_shown_by_its_headline() -> None:
    lower = {f"{name}.{fact}": value for name in ("val", "test") for fact, value in LOWER.items()}
    signed = {"val.signature": "nrefs:1|case:mixed|tok:13a"}
    card = as_markdown(model_card("tiny/1", {**TAGS, **lower, **signed}, {}, no_file))
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["model-index"][0]["results"][0]["metrics"][0] == {
        "type": "bleu",
        "name": "BLEU (sacreBLEU, lower-cased)",
        "value": 40.78,
    }
    assert "| set | sentences | BLEU (sacreBLEU, lower-cased) | chrF |" in body(card)
    assert "signature of BLEU: nrefs:1\\|case:lc\\|tok:13a" in body(card)


def no_file(_: str) -> None:
    """No set has a file of translations."""


def body(card: str) -> str:
    return card.split("\n---\n", 2)[-1]


def test_front_matter_and_scores_are_those_of_the_version() -> None:
    corpus = {
        "name": "multi30k-ende",
        "source_language": "en",
        "target_language": "de",
        "parts": [{"name": "multi30k"}],
    }
    clean = manifest("clean", {"corpus": corpus}, {"read": 29000, "pairs": 28996, "rejected_by": {"empty": 4}})
    training = {"updates": 6000, "minutes": 60.0}
    ended = {"seconds": 3600.0, "updates": 237, "stopped_early": True}
    train = manifest("train", {"model": {"layers": 3}, "training": training}, ended)
    card = as_markdown(model_card("ende/3", TAGS, {"clean": clean, "train": train}, no_file))
    front = yaml.safe_load(card.split("---\n")[1])
    assert (front["language"], front["pipeline_tag"]) == (["en", "de"], "translation")
    results = front["model-index"][0]["results"]
    assert [(each["dataset"]["name"], each["metrics"][0]["value"]) for each in results] == [
        ("val", 41.47),
        ("test", 39.18),
    ]
    text = body(card)
    assert "| val (dev) | 1014 | 41.47 (39.81–43.14) |" in text
    assert "| test | 1000 | 39.18 | 60.50 |" in text
    assert "28,996" in text
    assert "It took 1 h 00 min." in text
    assert "The clock ended the training: 237 of 6,000 updates" in text
    assert "| updates | 237 |" in text
    assert text.count("6,000") == 1, "not as if all planned updates were made"
    assert "    repro translate" in text


def test_a_batch_is_named_by_what_counts_it() -> None:
    for counted, named in (({"batch_sentences": 16}, "batch_sentences | 16 "), ({}, "batch_tokens | 25,000 ")):
        training = {"updates": 9, "batch_tokens": 25_000} | counted
        card = as_markdown(
            model_card("ende/3", TAGS, {"train": manifest("train", {"training": training}, {})}, no_file)
        )
        assert [line for line in card.replace("\\", "").splitlines() if "batch_" in line] == [f"| training.{named}|"]


def test_foreign_text_is_no_markup(tmp_path: Path) -> None:
    corpus = {"name": EVIL, "source_language": EVIL, "target_language": "de", "parts": [{"name": EVIL}]}
    row = {"pair_id": "a", "source": EVIL, "reference": EVIL, "hypothesis": EVIL, "chrf": 1.0}
    pl.DataFrame([row]).write_parquet(tmp_path / "sentences.parquet")
    tags = {f"{EVIL}.bleu": "1.0", f"{EVIL}.signature": EVIL}
    clean = manifest("clean", {"corpus": corpus}, {})
    card = as_markdown(model_card("ende/3", tags, {"clean": clean}, lambda _: tmp_path / "sentences.parquet"))
    assert "Worst translations" in card
    front = yaml.safe_load(card.split("\n---\n")[0].removeprefix("---\n"))
    assert front["license"] == "unknown"
    assert front["language"] == [EVIL, "de"]
    text = card[card.index("\n\n# ") :]
    assert "<script>" not in text
    assert "\n# c" not in text
    assert "`a`" not in text
    for line in text.splitlines():
        if line.startswith("| ") and "script" in line and "BLEU" not in line:
            assert line.replace("\\|", "").count("|") == 4, "a name adds no cell"


def test_scores_that_are_no_numbers_are_left_out() -> None:
    tags = {"val.bleu": "34.5", "val.chrf": "high", "val.bleu_low": "?", "val.signature": "nrefs:1", "a.bleu": "good"}
    assert scores_in_tags(tags) == {"val": {"bleu": "34.5", "signature": "nrefs:1"}}
