"""The model card as Markdown: front matter that a hub reads, foreign text that stays text, licences as documented."""

from pathlib import Path

import yaml
from synthetic_lineage import mixed

from infra.store.local import Store
from infra.store.manifest import Manifest
from tasks.corpus.catalogue import MULTI30K_ENDE, WMT14_ENDE, WMT14_ENFR, WMT14_SAMPLE_ENDE, Corpus
from tasks.corpus.terms import TERMS
from tasks.registration.lineage import lineage
from tasks.registration.model_card import as_markdown, model_card

EVIL = "</h1><script>alert(1)</script> `a` | *b*\n# c\n---\nlicense: mit"
SCORES = {
    "val": {"bleu": "41.47", "bleu_low": "39.81", "bleu_high": "43.14", "sentences": "1014", "signature": "tok:13a"},
    "test": {"bleu": 39.18, "chrf": 60.5, "sentences": 1000, "signature": "tok:13a"},
}


def manifest(stage: str, arguments: dict[str, object], facts: dict[str, object]) -> Manifest:
    return Manifest(stage, "k", 1, "", arguments, {}, "", facts, {}, 90.0, {"torch": "2.13.0"})


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
    train = manifest(
        "train", {"model": {"layers": 3}, "training": {"updates": 6000}}, {"gpu_kwh": 1.5, "seconds": 3600.0}
    )
    card = as_markdown(model_card("ende/3", SCORES, "val", {"clean": clean, "train": train}, "repro translate"))
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
    assert "29,000 pairs read, 28,996 kept. Rejected by filter: empty 4." in text
    assert "captions of photographs" in text
    assert "The training took 1 h 00 min. Its GPUs used 1.500 kWh" in text
    assert "    repro translate" in text


def test_foreign_text_is_no_markup() -> None:
    corpus = {"name": EVIL, "source_language": EVIL, "target_language": "de", "parts": [{"name": EVIL}]}
    rows = [{"source": EVIL, "reference": EVIL, "hypothesis": EVIL, "chrf": 1.0}]
    scores = {EVIL: {"bleu": 1.0, "signature": EVIL}}
    clean = manifest("clean", {"corpus": corpus}, {})
    card = as_markdown(model_card(EVIL, scores, "", {"clean": clean}, "", EVIL, {"worst": rows}))
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


def test_the_card_says_what_the_dev_set_decided_and_no_more() -> None:
    train, stopped = (manifest("train", {}, {"stopped_early": early}) for early in (False, True))
    best = manifest("average", {"averaging": {"which": "best"}}, {})
    assert decisions({}) == decisions({"train": train}) == ["champion"]
    assert decisions({"train": stopped}) == ["champion", "training ended"]
    assert decisions({"train": stopped, "average": best}) == ["champion", "training ended", "checkpoint"]
    assert "alone" not in body(as_markdown(model_card("ende/3", SCORES, "val", {"train": train}, "")))
    assert "decided" not in body(as_markdown(model_card("ende/3", SCORES, "", {"train": stopped}, "")))


def decisions(manifests: dict[str, Manifest]) -> list[str]:
    """What the card says that the set val decided."""
    text = body(as_markdown(model_card("ende/3", SCORES, "val", manifests, "")))
    (line,) = [line for line in text.splitlines() if line.startswith("The set val decided")]
    return [what for what in ("champion", "training ended", "checkpoint") if what in line]


def test_the_card_says_that_translations_were_cut() -> None:
    cut = manifest("translate", {}, {"sentences": 1014, "unfinished": 1014})
    text = body(as_markdown(model_card("ende/3", SCORES, "val", {"translate.val": cut}, "")))
    assert "1,014 of 1,014 translations of val" in text.partition("## Limits")[2].partition("##")[0]


def test_what_was_removed_is_said_to_be() -> None:
    text = body(as_markdown(model_card("ende/3", {}, "", {}, "")))
    assert text.count("Not known") == 4
    assert "It was scored on no set" in text


def test_synthetic_pairs_and_the_licence_of_their_text_are_said(tmp_path: Path) -> None:
    text = body(as_markdown(model_card("ende/3", SCORES, "val", lineage([mixed(Store(tmp_path))]), "")))
    assert "2 of 5 pairs are synthetic (back-translation)" in text
    assert "average3, seed 3" in text
    assert "| cleaned | not stated |" in text
    assert "| monolingual | not stated |" in text


def test_terms_are_those_of_the_documentation() -> None:
    page = " ".join((Path(__file__).parents[3] / "docs" / "data.md").read_text().split())
    for name in ("demo", "europarl", "commoncrawl", "giga"):
        assert TERMS[name].licence.split(";")[0].split(" in the")[0] in page
    assert "captions of photographs" in page
    corpora: tuple[Corpus, ...] = (MULTI30K_ENDE, WMT14_ENDE, WMT14_ENFR, WMT14_SAMPLE_ENDE)
    assert {part.name for corpus in corpora for part in corpus.parts} | {"demo"} == TERMS.keys()
