"""Explains why a system's score on a set differs from a claim: measures each cause, and writes a page.

    gap.json    all figures
    gap.html    the page: a waterfall from the claim to the score, and tables

It is not a stage of a run: ``repro gap`` calls it with translations that undo the causes of decoding. This stage undoes
the causes of text and protocol.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from infra.store.manifest import Manifest
from infra.store.store import Artifact, Store
from infra.tracking.model_version import headline
from model.config.special_pieces import UNK
from model.data.shards import Shards
from model.metric_names import BLEU, BLEU_INTL_LC, BLEU_PAPER, DEV_BLEU, DEV_PERPLEXITY
from tasks.engine.stage import Facts, stage
from tasks.evaluation.html import environment
from tasks.evaluation.score_gap import Claim, Condition, SettingDifference, explain, measure
from tasks.evaluation.text_causes import TextCause, text_causes
from tasks.evaluation.training_log import metric_rows
from tasks.evaluation.translation_metrics import Measured
from tasks.lazy_libraries import np, pl
from tasks.registration.lineage import lineage

PAGE = "gap.html"
ALSO = {BLEU_INTL_LC: " (Tensor2Tensor's own)", BLEU_PAPER: " (Tensor2Tensor's script)"}


@stage(version=5)
def gap(
    out: Path,
    system: str,
    claim: Claim,
    score: Artifact,
    alone: Mapping[str, Artifact],
    others: Mapping[str, Artifact],
    differences: tuple[SettingDifference, ...],
    left_out: tuple[str, ...],
    together: Artifact | None = None,
    theirs: Artifact | None = None,
) -> Facts:
    """Explain the ``score`` of ``system`` (``demo/2``) on a set, against the ``claim``.

    ``alone`` maps the words for a cause of decoding to translations without it; ``together`` has all causes undone.
    ``theirs`` is the score of the claim, if the claim is a system of this root; ``others`` are the system's scores of
    other sets, such as the full newstest2014. ``differences`` and ``left_out`` say what was not measured.
    """
    table = pl.read_parquet(score.path() / "sentences.parquet")
    metric = headline(score.facts)
    claimed = Condition.of(pl.read_parquet(theirs.path() / "sentences.parquet"), claim.metric) if theirs else None
    card = _card(score)
    made = lineage({card["set"]: score})
    language = made[f"score.{card['set']}"].arguments["language"]
    protocols = {name: each["protocol"] for name, each in card["scores"].items()}
    ours = Condition.of(table, metric)
    joint = _condition(table, metric, together) if together else ours
    undone = {f"decoding: {words}": _condition(table, metric, each) for words, each in alone.items()}
    beside = {protocols[n] + ALSO.get(n, ""): card["scores"][n] for n in protocols if BLEU in n and n != metric}
    beside |= {f"set {name} in its place": _card(each)["scores"][metric] for name, each in others.items()}
    for each in _text_causes(ours, claimed, language):
        if each.is_fault or claimed:
            undone[f"text: {each.about}"] = each.repair(ours)
            joint = each.repair(joint)
        else:
            beside[f"without {each.about}"] = measure(each.repair(ours), language).numbers
    if claim.metric not in ("", metric):
        words = f"protocol: {protocols[metric]}; the claim's is {protocols[claim.metric]}"
        undone[words] = ours._replace(metric=claim.metric)
        joint = joint._replace(metric=claim.metric)
    own = measure(ours, language)
    published = Measured(claim.score, np.full_like(own.resampled, claim.score))  # no sentence of it is known
    expected = measure(claimed, language) if claimed else published
    measured = {words: measure(each, language) for words, each in undone.items()}
    steps = explain(own, measured, measure(joint, language), expected)
    for words, pairs in _marked(made, card["set"], score.store):
        rest = table.filter(~pl.col("pair_id").is_in(list(pairs)))
        if 0 < len(rest) < len(table):
            about = f"without the sentences with {words}: {len(table) - len(rest):,}"
            beside[about] = measure(Condition.of(rest, metric), language).numbers
    values = {
        "system": {"about": system, **own.numbers},
        "set": card["set"],
        "sentences": len(table),
        "protocol": protocols[metric],
        "claim": asdict(claim)
        | {"score": expected.score, "protocol": protocols.get(claim.metric, "protocol not known")},
        "steps": steps,
        "beside": [{**numbers, "about": about} for about, numbers in beside.items()],
        "differences": [asdict(each) for each in differences],
        "left_out": [*left_out, *_gained(made, score.store)],
    }
    (out / "gap.json").write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", "utf-8")
    axis, bars = _bars(expected.score, [step["score"] for step in steps])
    page = environment(Path(__file__).parent).get_template(PAGE).render(axis=axis, bars=bars, **values)
    (out / PAGE).write_text(page, "utf-8")
    found = {"claimed": expected.score, "score": own.score, "unexplained": steps[-1]["score"]}
    return {"system": system, "claim": claim.name, **found}


def _card(score: Artifact) -> dict[str, Any]:
    return dict(json.loads((score.path() / "card.json").read_bytes()))


def _condition(table: pl.DataFrame, metric: str, made: Artifact) -> Condition:
    """The sentences of a set with other translations of them."""
    other = pl.read_parquet(made.path() / "hypotheses.parquet", columns=["pair_id", "hypothesis"])
    joined = table.drop("hypothesis").join(other, on="pair_id", how="left", maintain_order="left")
    return Condition.of(joined, metric)


def _text_causes(ours: Condition, claimed: Condition | None, language: str) -> list[TextCause]:
    """The causes that the claim's text does not have; of a published claim no text is known."""
    theirs = text_causes(claimed._replace(metric=ours.metric), language) if claimed else []
    known = {each.about for each in theirs}
    return [each for each in text_causes(ours, language) if each.about not in known]


def _marked(made: Mapping[str, Manifest], set_name: str, store: Store) -> Iterator[tuple[str, Iterable[str]]]:
    """The ids of sentences with a cut translation or an unknown piece, by the words for this."""
    if translated := made.get(f"translate.{set_name}"):
        table = pl.read_parquet(store.artifact(translated).path() / "hypotheses.parquet")
        yield "a longest allowed translation", table.filter(~pl.col("finished"))["pair_id"]
    if sharded := made.get(f"shard.{set_name}"):
        pairs = Shards(store.artifact(sharded).path())
        unknown = (n for n in range(len(pairs)) if any(UNK in pairs.pieces(side, n) for side in ("source", "target")))
        yield "an unknown piece", [pairs.pair_id(n) for n in unknown]


def _gained(made: Mapping[str, Manifest], store: Store) -> Iterator[str]:
    """Describes the gain of the training's last tenth; nothing if its log has fewer than two dev checks."""
    log = store.artifact(made["train"]).path() / "metrics.jsonl" if "train" in made else None
    checks = [row for row in metric_rows(log) if DEV_PERPLEXITY in row] if log and log.exists() else []
    before = [row for row in checks if row["done"] <= 0.9 * checks[-1]["done"]]
    if before:
        updates = f"update {before[-1]['done']:,} to the last, {checks[-1]['done']:,}"
        for name in (DEV_PERPLEXITY, DEV_BLEU):
            if name in before[-1] and name in checks[-1]:
                *earlier, last = (row[name] for row in checks if name in row)
                best = min if name == DEV_PERPLEXITY else max
                is_better = best(last, *earlier) != best(earlier)
                else_best = f"before it {best(earlier):.3f} was best"
                more = "still improving, so more updates may help" if is_better else else_best
                yield f"{name} from {updates}: {before[-1][name]:.3f} to {last:.3f}; {more}"


def _bars(claim: float, steps: Sequence[float]) -> tuple[float, list[tuple[float, float]]]:
    """The score at which the axis of the waterfall begins, and left end and width of each bar in % of the axis."""
    reached = list(accumulate(steps, initial=claim))
    room = max(max(reached) - min(reached), 0.1)
    axis = max(min(0.0, *reached), min(reached) - 0.35 * room)
    spans = [(axis, reached[0]), *(sorted(step) for step in pairwise(reached)), (axis, reached[-1])]
    unit = (max(reached) - axis) / 100 or 1.0
    return axis, [((low - axis) / unit, (high - low) / unit) for low, high in spans]
