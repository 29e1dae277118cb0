"""The model card of a version: use, limits, data, training, scores, examples, how to load.

The site renders the sections of a card as HTML; ``as_markdown`` returns the ``README.md`` of an export.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.store.manifest import Manifest
from infra.tracking.model_version import HEADLINES, finite, headline, headline_signature, scored_sets, tags_below
from model.metric_names import BLEU, BLEU_LC, BLEU_PAPER, CHRF, DEV_PERPLEXITY, PERPLEXITY, TER, UPDATES
from tasks.corpus.catalogue import OWN, TERMS, may_copy
from tasks.durations import duration
from tasks.evaluation.html import environment, readable, score_text
from tasks.lazy_libraries import pl
from tasks.reporting.examples import translation_examples
from tasks.reporting.remarks import about_synthetic, ended_by_clock, failed_translations

MEASURE_LABELS = {
    BLEU: "BLEU (sacreBLEU, cased)",
    BLEU_LC: "BLEU (sacreBLEU, lower-cased)",
    BLEU_PAPER: "BLEU (protocol paper)",
    CHRF: "chrF",
    TER: "TER",
    PERPLEXITY: "perplexity per piece",
}
SHAPE = ("layers", "decoder_layers", "d_model", "d_ff", "heads", "p_drop", "norm", "positions")
OPTIMISATION = (
    "epochs", "batch_tokens", "batch_sentences", "label_smoothing", "schedule", "warmup", "warmup_epochs",
    "seed", "precision",
)  # fmt: skip
NOT_KNOWN = "Not known: the artifact was removed."
HARM = (
    "It was not tested for harmful or biased output. A wrong translation can read well, so nobody should act on one"
    " unread where a mistake does harm."
)
Facts = Mapping[str, Any]
Examples = Mapping[str, Sequence[Mapping[str, Any]]]
"""Translations by kind (best, worst, random), as ``tasks.reporting.examples`` chooses them."""
SENTENCES = "sentences.parquet"
"""The file of a score that holds the translations."""
EXAMPLES_OF_EACH_KIND = 3
LOAD = """repro translate --model {quoted} < in.txt > out.txt

import mlflow
model = mlflow.pyfunc.load_model({address})
model.predict(["A dog runs."])
"""
Rows = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A part of the card: paragraphs, then a table whose first row is its head, then lines of code."""

    title: str
    paragraphs: tuple[str, ...] = ()
    rows: Rows = ()
    code: str = ""


@dataclass(frozen=True)
class ModelCard:
    """The card. ``examples`` are of the set ``example_set``."""

    name: str
    front: Mapping[str, Any]
    """Fields of the front matter, as the Hugging Face hub defines them."""
    sections: tuple[Section, ...]
    example_set: str
    examples: Examples


def model_card(
    version: str, tags: Mapping[str, str], manifests: Mapping[str, Manifest], sentences_of: Callable[[str], Path | None]
) -> ModelCard:
    """The card of the version ``demo/3``. Its scores come from its tags, which outlive the artifacts.

    ``manifests`` are the version's lineage; sections about artifacts that were removed say so. ``sentences_of``
    returns the file of a set's translations. Examples are from the first set except the dev set, or else from it.
    """
    scores = scores_in_tags(tags)
    dev = tags.get("dev_set", "")
    clean = manifests.get("clean")
    train = manifests.get("train")
    corpus = clean.arguments.get("corpus", {}) if clean else {}
    languages = [corpus[side] for side in ("source_language", "target_language") if side in corpus]
    took = f"It took {duration(float(train.facts.get('seconds', train.seconds)))}." if train else NOT_KNOWN
    signatures = (f"{facts['signature']}" for facts in scores.values() if facts.get("signature"))
    signed = dict.fromkeys(headline_signature(each, headline(*scores.values())) for each in signatures)
    protocols = ["Only scores with the same protocol and the same references can be compared."]
    protocols += [f"sacreBLEU's signature of BLEU: {signature}" for signature in signed]
    about = [_cleaning(clean)]
    if synthetic := manifests.get("mix") or manifests.get("extract_best"):
        about.append(about_synthetic(synthetic.stage, synthetic.facts))
    load = LOAD.format(quoted=shlex.quote(version), address=json.dumps(f"models:/{version}"))
    sections = (
        Section("Use", _use(corpus)),
        Section("Limits", _limits(scores, manifests)),
        Section("Data", tuple(about), _data(corpus, manifests)),
        Section("Training", (took,), _training(manifests)),
        Section("Scores", (*protocols, *_choices(dev, manifests)), score_table(scores, dev)),
        Section("How to load", code=load),
    )
    example_set = next((name for name in scores if name != dev), dev)
    shown = may_copy(manifest.arguments for manifest in manifests.values())
    examples = _read_examples(sentences_of(example_set) if shown else None)
    return ModelCard(version, _front(version, languages, scores), sections, example_set, examples)


def as_markdown(card: ModelCard, first: str = "") -> str:
    """Front matter, then ``first`` as it is, then the card. Foreign text stays text where Markdown is rendered."""
    front = yaml.safe_dump(dict(card.front), sort_keys=False, allow_unicode=True).rstrip()
    page = environment(Path(__file__).parent).get_template("model_card.md").render(card=card, front=front, first=first)
    return page.removesuffix("\n")


def _use(corpus: Facts) -> tuple[str, ...]:
    if not corpus:
        return ("Not known: the artifacts of its text were removed.",)
    uses = dict.fromkeys(TERMS.get(part["name"], OWN).use for part in corpus["parts"])
    return (
        f"Translates single sentences from {corpus['source_language']} to {corpus['target_language']}, of the kind of"
        f" the corpus {corpus['name']}. Intended use of that text: {'; '.join(uses)}.",
    )


def _limits(scores: Mapping[str, Facts], manifests: Mapping[str, Manifest]) -> tuple[str, ...]:
    found = []
    sharding = manifests["shard.train"].arguments.get("sharding", {}) if "shard.train" in manifests else {}
    if "max_pieces" in sharding:
        found.append(f"No sentence of its training text has more than {sharding['max_pieces']} tokens.")
    if train := manifests.get("train"):
        found += [
            f"{each[0].upper()}{each[1:]}." for each in ended_by_clock(train.arguments.get("training", {}), train.facts)
        ]
    for name in scores:
        translated = manifests.get(f"translate.{name}")
        found += [f"{remark}." for remark in failed_translations(name, translated.facts)] if translated else []
    return (*found, f"It was scored on {', '.join(scores) or 'no set'}, and on no other text.", HARM)


def _cleaning(clean: Manifest | None) -> str:
    if clean is None:
        return NOT_KNOWN
    facts = clean.facts
    by = ", ".join(f"{name} {readable(count)}" for name, count in facts.get("rejected_by", {}).items() if count)
    counts = f"{readable(facts.get('read', 0))} pairs read, {readable(facts.get('pairs', 0))} kept"
    return f"{counts}. Removed by filter: {by or 'none'}. A licence is what the publisher states; no legal advice."


def _data(corpus: Facts, manifests: Mapping[str, Manifest]) -> Rows:
    text = manifests.get("clean.monolingual")
    parts = (*corpus.get("parts", ()), *(text.arguments["corpus"]["parts"] if text else ()))
    terms = {part["name"]: TERMS.get(part["name"], OWN) for part in parts}
    rows = [(name, each.licence, each.use) for name, each in terms.items()]
    return (("text", "licence, as far as stated", "intended use"), *rows) if rows else ()


def _training(manifests: Mapping[str, Manifest]) -> Rows:
    train = manifests.get("train")
    if train is None:
        return ()
    model = train.arguments.get("model", {})
    training = train.arguments.get("training", {})
    fields = [(f"model.{name}", model[name]) for name in SHAPE if name in model]
    unused = ("batch_tokens",) if training.get("batch_sentences") else ()
    fields += [(f"training.{name}", training[name]) for name in OPTIMISATION if name in training and name not in unused]
    if vocabulary := manifests.get("learn_bpe"):
        fields.append(("vocabulary.size", vocabulary.facts.get("size", "")))
    if average := manifests.get("average"):
        fields.append(("checkpoints averaged", average.facts.get("checkpoints", "")))
    facts = (UPDATES, "parameters", "target_tokens", DEV_PERPLEXITY, "device", "ranks")
    fields += [(name.replace("_", " "), train.facts[name]) for name in facts if name in train.facts]
    fields += [(name, train.made[name]) for name in ("machine", "commit", "torch", "at") if name in train.made]
    return (("what", "value"), *((name, readable(value)) for name, value in fields))


def _choices(dev: str, manifests: Mapping[str, Manifest]) -> tuple[str, ...]:
    """What the dev set decided, as far as it is recorded."""
    if not dev:
        return ()
    train = manifests.get("train")
    average = manifests.get("average")
    decided = ["whether the version becomes champion (BLEU)"]
    if train and train.facts.get("stopped_early") and "best_update" in train.facts:
        decided.append("when the training ended (perplexity)")
    if average and average.arguments.get("averaging", {}).get("which") == "best":
        decided.append("which checkpoint became the model (perplexity)")
    return (f"The set {dev} decided {', '.join(decided)}. How the settings were chosen is not recorded.",)


def score_table(scores: Mapping[str, Facts], dev: str) -> Rows:
    """The scores of each set with their intervals; none if nothing was measured."""
    bleu = headline(*scores.values())
    shown = [name for name in MEASURE_LABELS if name == bleu or name not in HEADLINES]
    names = [name for name in shown if any(name in facts for facts in scores.values())]
    if not names:
        return ()
    rows: list[tuple[str, ...]] = [("set", "sentences", *(MEASURE_LABELS[name] for name in names))]
    for each, facts in scores.items():
        label = f"{each} (dev)" if each == dev else each
        rows.append((label, f"{facts.get('sentences', '')}", *(score_text(facts, name) for name in names)))
    return tuple(rows)


def _front(name: str, languages: Sequence[str], scores: Mapping[str, Facts]) -> dict[str, Any]:
    bleu = headline(*scores.values())
    results = [
        {
            "task": {"type": "translation"},
            "dataset": {"name": each, "type": each},
            "metrics": [
                {"type": kind, "name": MEASURE_LABELS[measure], "value": float(facts[measure])}
                for kind, measure in ((BLEU, bleu), (CHRF, CHRF), (TER, TER))
                if measure in facts
            ],
        }
        for each, facts in scores.items()
    ]
    return {
        "language": [*languages],
        "license": "unknown",
        "pipeline_tag": "translation",
        "tags": ["translation"],
        "model-index": [{"name": name, "results": results}],
    }


def _read_examples(file: Path | None) -> Examples:
    """The best, worst and random translations of a file of scored sentences; none if it is missing or damaged."""
    try:
        found = translation_examples(pl.read_parquet(file)) if file else {}
    except (OSError, pl.exceptions.PolarsError):  # a damaged file costs the examples, not the card
        return {}
    return {kind: rows[:EXAMPLES_OF_EACH_KIND] for kind, rows in found.items()}


def scores_in_tags(tags: Mapping[str, str]) -> dict[str, Facts]:
    """The facts of a version's scores, by set; without a score that is no number, because anybody may write tags."""
    numbers = {f"{measure}{end}" for measure in MEASURE_LABELS for end in ("", "_low", "_high")}
    sets = {name: tags_below(tags, f"{name}.") for name in scored_sets(tags)}
    return {
        name: {fact: text for fact, text in facts.items() if fact not in numbers or finite(text) is not None}
        for name, facts in sets.items()
    }
