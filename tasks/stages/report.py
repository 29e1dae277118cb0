"""Writes one page about a run: scores with their protocols, training, data, translations, attention.

    report.html                                    self-contained: it needs no other file and no network
    curves.png  filters.png  attention_0.png  …    its pictures for a light page
    tokens.csv                                     how often each token occurs in the training text

The page contains no date, so that the same inputs give the same page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.store.store import Artifact
from infra.tracking.model_version import headline
from model.data.bpe import TokenizerPair
from model.data.shards import Shards
from tasks.engine.limits import counted_apart
from tasks.engine.stage import Facts, checks, progress, stage
from tasks.evaluation.html import draw, environment, readable
from tasks.evaluation.paper_page import run_table
from tasks.evaluation.paper_row import PaperRow, compare_to_paper
from tasks.evaluation.seed_spread import seed_spreads
from tasks.evaluation.training_log import training_speed
from tasks.lazy_libraries import pl
from tasks.reporting.examples import rejected_examples, translation_examples
from tasks.reporting.frequent_tokens import TOKENS_FILE, most_frequent, token_counts
from tasks.reporting.pictures import given, picture_specs
from tasks.reporting.remarks import about_synthetic, dev_set, run_remarks


def _remarks(run: Artifact, hypotheses: Mapping[str, Artifact], scores: Mapping[str, Artifact]) -> list[str]:
    translations = {name: made.manifest for name, made in hypotheses.items()}
    dev = dev_set(run.manifest, translations)
    facts = ({name: made.facts for name, made in each.items()} for each in (hypotheses, scores))
    training = run.manifest.arguments["training"] if run.manifest else {}
    return run_remarks(dev, training, run.facts, *facts)


def _frequent_tokens(out: Path, shards: Artifact) -> dict[str, Any]:
    """Write ``tokens.csv``; returns the most frequent tokens of each side, none if the vocabulary was removed."""
    vocabulary = given(shards, "vocabulary")
    if vocabulary is None:
        return {}
    tokens = token_counts(Shards(shards.path()), TokenizerPair.load(vocabulary.path()))
    tokens.write_csv(out / TOKENS_FILE)
    return most_frequent(tokens)


@stage(version=1)
def report(
    out: Path,
    run_name: str,
    corpus: Artifact,
    shards: Artifact,
    run: Artifact,
    sets: Mapping[str, Artifact],
    hypotheses: Mapping[str, Artifact],
    scores: Mapping[str, Artifact],
    paper: tuple[PaperRow, ...] = (),
    seeds: Mapping[str, Mapping[str, Artifact]] | None = None,
    synthetic: Artifact | None = None,
) -> Facts:
    """Draw the pictures and write the page. ``run`` is the training; the mappings are by set name.

    ``paper`` is empty, or holds the row of the paper that the run is compared with. ``seeds`` has the scores of each
    set by system (``seed-1`` and so on, ``ensemble``), if the run has models of several seeds. ``synthetic`` has the
    training pairs if some are synthetic.
    """
    pictures = {}
    specs = list(picture_specs(corpus, shards, run, hypotheses, scores))
    for done, (name, alt, drawing) in enumerate(specs):
        progress(done, len(specs), name)
        pictures[name], light = draw(alt, drawing)
        (out / f"{name}.png").write_bytes(light)
    mixed = {synthetic.stage: synthetic} if synthetic else {}
    stages = {"clean": corpus, **mixed, "shard": shards, "train": run}
    stages |= {f"prepare_sets {name}": artifact for name, artifact in sets.items()}
    stages |= {f"translate {name}": artifact for name, artifact in hypotheses.items()}
    facts = {name: counted_apart(artifact.facts) for name, artifact in stages.items()}
    cards = {name: json.loads((a.path() / "card.json").read_bytes()) for name, a in scores.items()}
    values = {
        "run": run_name,
        "shape": json.loads((run.path() / "model.json").read_text())["model"],
        "training": {**run.facts, **training_speed(run.path() / "metrics.jsonl")},
        "corpus": facts["clean"],
        "shards": shards.facts,
        "tokens": _frequent_tokens(out, shards),
        "cards": cards,
        "headline": headline,
        "remarks": _remarks(run, hypotheses, scores),
        "paper": [run_table(compare_to_paper(row, run.facts, cards[row.set_name])) for row in paper],
        "seeds": seed_spreads({n: {s: a.facts for s, a in systems.items()} for n, systems in (seeds or {}).items()}),
        "examples": {
            name: translation_examples(pl.read_parquet(a.path() / "sentences.parquet")) for name, a in scores.items()
        },
        "removed": rejected_examples(corpus.path() / "rejected.parquet"),
        "synthetic": about_synthetic(synthetic.stage, synthetic.facts) if synthetic else "",
        "pictures": pictures,
        "sentence_bleu": [picture for name, picture in pictures.items() if name.startswith("sentence_bleu_")],
        "attentions": [picture for name, picture in pictures.items() if name.startswith("attention_")],
        "attention_set": list(hypotheses)[-1],
        "checks": checks(),
        "facts": [(name, [(fact, readable(value)) for fact, value in each.items()]) for name, each in facts.items()],
    }
    page = environment(Path(__file__).parent).get_template("report.html").render(values).encode()
    (out / "report.html").write_bytes(page)
    return {"bytes": len(page), "pictures": len(pictures)}
