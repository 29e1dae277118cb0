"""A run on one page: scores with their protocols, training, data, translations, attention.

    report.html    everything, self-contained: no file and no address beside it is needed
    curves.png  filters.png  lengths.png  attention_0.png …    its pictures for a light page

The page carries no date, so that the same inputs give the same page. Text of the corpus is escaped: it is foreign.
"""

import base64
import difflib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from infra.store.local import Artifact
from model.data.shards import Shards
from tasks.engine.stage import Facts, progress, stage
from tasks.evaluation.paper_page import run_table
from tasks.evaluation.paper_row import PaperRow
from tasks.evaluation.paper_row import compare_to_paper as against_paper

EXAMPLES = 5
"""Translations of each kind."""
ATTENTIONS = 4
SEED = 1
LONGEST_TEXT = 400
"""Characters of a rejected line that are shown."""

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Picture:
    """One drawing for light and dark pages as data URIs; ``alt`` says what it shows."""

    name: str
    alt: str
    light: str
    dark: str


def training_curves(metrics: Path) -> dict[str, NDArray[np.float64]]:
    """The columns of ``plots.Curves`` from ``metrics.jsonl``; of an update written twice the later row counts."""
    training: dict[int, JsonObject] = {}
    validation: dict[int, float] = {}
    for line in metrics.read_text().splitlines():
        row = json.loads(line)
        if "dev_perplexity" in row:
            validation[int(row["done"])] = row["dev_perplexity"]
        elif "loss" in row:
            training[int(row["done"])] = row
    rows = [training[update] for update in sorted(training)]
    columns = {name: np.array([row[name] for row in rows], np.float64) for name in ("loss", "nll", "learning_rate")}
    return {
        "updates": np.array(sorted(training), np.float64),
        **columns,
        "dev_updates": np.array(sorted(validation), np.float64),
        "dev_perplexity": np.array([validation[update] for update in sorted(validation)], np.float64),
    }


def training_speed(metrics: Path) -> JsonObject:
    """Median target tokens a second and share of padding over the rows of ``metrics.jsonl``."""
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    columns = {name: [row[name] for row in rows if name in row] for name in ("tokens_per_second", "padding")}
    return {name: float(np.median(values)) for name, values in columns.items() if values}


def translation_examples(sentences: pl.DataFrame) -> dict[str, list[JsonObject]]:
    """The best and the worst translations by sentence chrF (of equals the longer ones), and some drawn at random."""
    ranked = sentences.with_columns(words=pl.col("reference").str.count_matches(r"\S+")).sort(
        "chrf", "words", "pair_id", descending=[True, True, False]
    )
    chosen = {
        "best": ranked.head(EXAMPLES),
        "worst": ranked.sort("chrf", "words", "pair_id", descending=[False, True, False]).head(EXAMPLES),
        "random": sentences.sample(min(EXAMPLES, len(sentences)), seed=SEED, shuffle=True),
    }
    return {
        kind: [
            {**row, "words": mark_matches(row["hypothesis"], row["reference"])} for row in table.iter_rows(named=True)
        ]
        for kind, table in chosen.items()
    }


def mark_matches(hypothesis: str, reference: str) -> list[tuple[str, bool]]:
    """The hypothesis in runs of words, each with whether the reference has it too, in this order."""
    ours, theirs = hypothesis.split(), reference.split()
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    runs: list[tuple[str, bool]] = []
    for tag, start, end, _, _ in matcher.get_opcodes():
        if start < end:
            runs.append((" ".join(ours[start:end]), tag == "equal"))
    return runs


def rejected_examples(rejected: Path) -> list[JsonObject]:
    """The first pair that each filter removed."""
    table = pl.scan_parquet(rejected)
    filters = table.select("filter").unique().collect(engine="streaming")["filter"].sort()
    return [row for name in filters for row in table.filter(pl.col("filter") == name).head(1).collect().to_dicts()]


def attention_examples(folder: Path) -> list[tuple[JsonObject, NDArray[np.float64]]]:
    """Example sentences of a translation with their cross-attention (layers, heads, written pieces, source pieces)."""
    described = json.loads((folder / "attention.json").read_text())
    with np.load(folder / "attention.npz") as arrays:
        return [(row, arrays[f"cross_{i}"].astype(np.float64)) for i, row in enumerate(described[:ATTENTIONS])]


def all_heads(folder: Path) -> dict[str, tuple[NDArray[np.float64], list[str], list[str]]]:
    """Every attention of the first example as ``plots.attention_heads`` takes them; empty where a translation of before
    these were kept has the cross-attention alone."""
    described = json.loads((folder / "attention.json").read_text())
    with np.load(folder / "attention.npz") as arrays:
        if "encoder_0" not in arrays:
            return {}
        encoder, decoder, cross = (arrays[f"{kind}_0"].astype(np.float64) for kind in ("encoder", "decoder", "cross"))
    source, written = described[0]["source_pieces"], described[0]["hypothesis_pieces"]
    return {
        "encoder: source over itself": (encoder, source, source),
        "decoder: translation over itself": (decoder, written, ["<s>", *written][: decoder.shape[-1]]),
        "cross: translation over source": (cross, written, source),
    }


def facts_table(artifacts: Mapping[str, Artifact]) -> list[tuple[str, list[tuple[str, str]]]]:
    """What each stage said of its work, ready to read."""
    return [(name, [(fact, readable(value)) for fact, value in a.facts.items()]) for name, a in artifacts.items()]


def readable(value: object) -> str:
    """A fact as a person reads it: digits grouped, small dicts in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {readable(inner)}" for name, inner in value.items())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or not math.isfinite(value):
        return f"{value:,}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """``3 h 07 min``, ``4 min 09 s`` or ``8 s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def visible(text: str) -> str:
    """Foreign text as it may stand on a page: what cannot be printed becomes U+FFFD, what is overlong is cut."""
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return shown if len(shown) <= LONGEST_TEXT else shown[:LONGEST_TEXT] + " …"


def picture_specs(
    corpus: Artifact, shards: Artifact, run: Artifact, hypotheses: Mapping[str, Artifact]
) -> Iterator[tuple[str, str, Callable[[Any], bytes]]]:
    """Name, description and drawing (given a theme) of each picture."""
    from tasks.evaluation import (
        plots,
    )  # matplotlib takes half a second, which a run with nothing to do shall not wait for

    curves = plots.Curves(**training_curves(run.path() / "metrics.jsonl"))
    yield "curves", "Loss, perplexity and learning rate against the update", partial(plots.curves, curves)
    removed, read = corpus.facts["rejected_by"], corpus.facts["read"]
    yield "filters", "Pairs removed by each filter", partial(plots.filters, removed, read)
    pieces = Shards(shards.path())
    source, target = (np.bincount(pieces.lengths[side]) for side in ("source", "target"))
    yield "lengths", "Pieces in a training sentence", partial(plots.lengths, source, target)
    for number, (sentence, weights) in enumerate(attention_examples(list(hypotheses.values())[-1].path())):
        alt = f"Cross-attention of {sentence['pair_id']}"
        sides = sentence["source_pieces"], sentence["hypothesis_pieces"]
        yield f"attention_{number}", alt, partial(plots.attention, weights, *sides)
    if heads := all_heads(list(hypotheses.values())[-1].path()):
        yield "heads", "All heads of encoder, decoder and cross-attention", partial(plots.attention_heads, heads, "")


def draw(out: Path, name: str, alt: str, drawing: Callable[[Any], bytes]) -> Picture:
    """Write the light picture into ``out`` and return both for the page."""
    from tasks.evaluation import plots

    light = drawing(plots.LIGHT)
    (out / f"{name}.png").write_bytes(light)
    return Picture(name, alt, _data_uri(light), _data_uri(drawing(plots.DARK)))


def render(values: JsonObject) -> str:
    """The page. Whatever the template asks for and does not find is an error."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(readable=readable, duration=duration, visible=visible)
    return environment.from_string(Path(__file__).with_name("report.html").read_text()).render(values)


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


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
) -> Facts:
    """Draw and write the page of one run; ``run`` is its training, the mappings are by the name of the set.

    ``paper`` is empty, or holds the one row of the paper that the run stands beside.
    """
    pictures = {}
    waiting = list(picture_specs(corpus, shards, run, hypotheses))
    for done, (name, alt, drawing) in enumerate(waiting):
        progress(done, len(waiting), name)
        pictures[name] = draw(out, name, alt, drawing)
    stages = {"clean": corpus, "shard": shards, "train": run}
    stages |= {f"prepare_sets {name}": artifact for name, artifact in sets.items()}
    stages |= {f"translate {name}": artifact for name, artifact in hypotheses.items()}
    cards = {name: json.loads((a.path() / "card.json").read_text()) for name, a in scores.items()}
    values = {
        "run": run_name,
        "shape": json.loads((run.path() / "model.json").read_text())["model"],
        "training": {**run.facts, **training_speed(run.path() / "metrics.jsonl")},
        "corpus": corpus.facts,
        "shards": shards.facts,
        "cards": cards,
        "paper": [run_table(against_paper(row, run.facts, cards[row.set_name])) for row in paper],
        "examples": {
            name: translation_examples(pl.read_parquet(a.path() / "sentences.parquet")) for name, a in scores.items()
        },
        "removed": rejected_examples(corpus.path() / "rejected.parquet"),
        "pictures": pictures,
        "attentions": [picture for name, picture in pictures.items() if name.startswith("attention_")],
        "attention_set": list(hypotheses)[-1],
        "facts": facts_table(stages),
    }
    page = render(values).encode()
    (out / "report.html").write_bytes(page)
    return {"bytes": len(page), "pictures": len(pictures)}
