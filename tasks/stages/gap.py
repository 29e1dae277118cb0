"""Says why a system's score on a set is not the claimed one: measures each cause, and writes a page.

    gap.json    all figures
    gap.html    the page: a waterfall from the claim to the score, and tables
    waterfall.png

It is no stage of a run: ``repro gap`` calls it, with translations that undo the causes of decoding. Those of text and
protocol are undone here. ``tasks.evaluation.score_gap`` says how the bars are computed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from infra.store.manifest import Manifest
from infra.store.store import Artifact
from model.config.special_pieces import UNK
from model.data.shards import Shards
from model.metric_names import BLEU, BLEU_INTL_LC, BLEU_PAPER, DEV_BLEU, DEV_PERPLEXITY
from tasks.engine.stage import Facts, stage
from tasks.evaluation.html import draw, environment
from tasks.evaluation.score_gap import Claim, Condition, SettingDifference, explain, known, measure
from tasks.evaluation.text_causes import TextCause, changed_references, text_causes
from tasks.evaluation.training_log import metric_rows
from tasks.lazy_libraries import pl
from tasks.registration.lineage import lineage

PAGE = "gap.html"
ALSO = {BLEU_INTL_LC: " (Tensor2Tensor's own)", BLEU_PAPER: " (Tensor2Tensor's script)"}
SIDES = ("source", "target")


@stage(version=1)
def gap(
    out: Path,
    system: str,
    claim: Claim,
    score: Artifact,
    language: str,
    alone: Mapping[str, Artifact],
    together: tuple[Artifact, ...] = (),
    theirs: tuple[Artifact, ...] = (),
    others: Mapping[str, Artifact] | None = None,
    differences: tuple[SettingDifference, ...] = (),
    left_out: tuple[str, ...] = (),
) -> Facts:
    """Explain the ``score`` of ``system`` (``demo/2``) on a set in ``language``, against the ``claim``.

    ``alone`` holds translations with one cause of decoding undone, by its words, ``together`` those with all undone.
    ``theirs`` is the score of the claim, where that is a system of this root; ``others`` are the system's scores of
    other sets. ``differences`` and ``left_out`` say what was not measured.
    """
    table = pl.read_parquet(score.path() / "sentences.parquet")
    claimed = pl.read_parquet(theirs[0].path() / "sentences.parquet") if theirs else None
    card = json.loads((score.path() / "card.json").read_text())
    protocols = {name: each["protocol"] for name, each in card["scores"].items()}
    made = lineage([score])
    ours = _condition(table)
    joint = _condition(table, *together)
    undone = {f"decoding: {words}": _condition(table, each) for words, each in alone.items()}
    causes, unclaimed = _text_causes(table, claimed, language)
    for each in causes:
        undone[f"text: {each.about}"] = _repaired(ours, each)
        joint = _repaired(joint, each)
    if claim.metric not in ("", BLEU):
        words = f"protocol: {protocols[BLEU]}; the claim's is {protocols[claim.metric]}"
        undone[words] = ours._replace(metric=claim.metric)
        joint = joint._replace(metric=claim.metric)
    own = measure(ours, language)
    expected = known(claim.score, own) if claimed is None else measure(_condition(claimed), language)
    measured = {words: measure(each, language) for words, each in undone.items()}
    steps = explain(own, measured, measure(joint, language), expected)
    cards = {name: json.loads((each.path() / "card.json").read_text()) for name, each in (others or {}).items()}
    without = {"longest allowed translation": _unfinished(score, made), "unknown piece": _unknown(score, made)}
    rows = [
        *(
            each | {"about": each["protocol"] + ALSO.get(name, "")}
            for name, each in card["scores"].items()
            if BLEU in name and name != BLEU
        ),
        *(each["scores"][BLEU] | {"about": f"set {name} in its place"} for name, each in cards.items()),
        *(measure(_repaired(ours, each), language).row(f"if even: {each.about}") for each in unclaimed),
        *_left_out(table, without, language),
    ]
    values = {
        "system": own.row(system),
        "set": card["set"],
        "sentences": len(table),
        "protocol": protocols[BLEU],
        "claim": asdict(claim)
        | {"score": expected.score, "protocol": protocols.get(claim.metric, "protocol not known")},
        "steps": steps,
        "beside": rows,
        "differences": [asdict(each) for each in differences],
        "left_out": [*left_out, *_last_tenth(score, made.get("train"))],
    }
    (out / "gap.json").write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    picture, light = draw(f"From {claim.name} to {system}", lambda theme: _draw(values, theme))
    (out / "waterfall.png").write_bytes(light)
    page = environment(Path(__file__).parent).get_template(PAGE).render(picture=picture, **values)
    (out / PAGE).write_text(page)
    facts = {"system": system, "claim": claim.name, "claimed": expected.score, "score": own.score}
    return facts | {"unexplained": steps[-1]["score"]}


def _condition(table: pl.DataFrame, *made: Artifact) -> Condition:
    """The sentences of a set as they were scored, or with other translations of them."""
    written = table
    for each in made:
        other = pl.read_parquet(each.path() / "hypotheses.parquet", columns=["pair_id", "hypothesis"])
        written = table.select("pair_id").join(other, on="pair_id", how="left", maintain_order="left")
    return Condition(written["hypothesis"].to_list(), table["reference"].to_list())


def _repaired(what: Condition, cause: TextCause) -> Condition:
    return Condition(*cause.repair(what.written, what.expected), what.metric)


def _text_causes(
    table: pl.DataFrame, claimed: pl.DataFrame | None, language: str
) -> tuple[list[TextCause], list[TextCause]]:
    """Causes that the claim's text does not have, and those of which that is not known."""
    written, expected, _ = _condition(table)
    if claimed is None:
        found = text_causes(written, expected, language)
        return [each for each in found if each.is_fault], [each for each in found if not each.is_fault]
    changed = []
    if claimed["pair_id"].equals(table["pair_id"]):
        changed = changed_references(expected, claimed["reference"].to_list())
        expected = claimed["reference"].to_list()
    theirs = {each.about for each in text_causes(*_condition(claimed)[:2], language)}
    return [*changed, *(each for each in text_causes(written, expected, language) if each.about not in theirs)], []


def _left_out(table: pl.DataFrame, marked: Mapping[str, set[str]], language: str) -> Iterator[dict[str, Any]]:
    """The score without the sentences that have something, by its words."""
    for words, pairs in marked.items():
        rest = table.filter(~pl.col("pair_id").is_in(list(pairs)))
        if 0 < len(rest) < len(table):
            count = len(table) - len(rest)
            yield measure(_condition(rest), language).row(f"without the sentences with a {words}: {count:,}")


def _of_set(score: Artifact, made: Mapping[str, Manifest], stage_name: str) -> Path | None:
    """The folder of what a stage made for the set that was scored."""
    scored = score.store.find(score.stage, score.key)
    manifest = made.get(f"{stage_name}.{scored.item}") if scored else None
    return score.store.artifact(manifest).path() if manifest else None


def _unfinished(score: Artifact, made: Mapping[str, Manifest]) -> set[str]:
    """Sentences whose search ended at the longest length."""
    folder = _of_set(score, made, "translate")
    return (
        set(pl.read_parquet(folder / "hypotheses.parquet").filter(~pl.col("finished"))["pair_id"]) if folder else set()
    )


def _unknown(score: Artifact, made: Mapping[str, Manifest]) -> set[str]:
    """Sentences of which a side has a piece that the vocabulary lacks."""
    folder = _of_set(score, made, "shard")
    pairs = Shards(folder) if folder else None
    rows = range(len(pairs)) if pairs else ()
    return {pairs.pair_id(n) for n in rows if pairs and any(UNK in pairs.pieces(side, n) for side in SIDES)}


def _last_tenth(score: Artifact, train: Manifest | None) -> Iterator[str]:
    """What the end of the training gained, in words, where its log has two dev checks to say so."""
    log = score.store.artifact(train).path() / "metrics.jsonl" if train else None
    checks = [row for row in (metric_rows(log) if log and log.exists() else ()) if DEV_PERPLEXITY in row]
    before = [row for row in checks if row["done"] <= 0.9 * checks[-1]["done"]]
    for name in (DEV_PERPLEXITY, DEV_BLEU):
        if before and name in before[-1] and name in checks[-1]:
            updates = f"update {before[-1]['done']:,} to the last, {checks[-1]['done']:,}"
            yield f"{name} from {updates}: {before[-1][name]:.3f} to {checks[-1][name]:.3f}"


def _draw(values: Mapping[str, Any], theme: Any) -> bytes:
    from tasks.evaluation.waterfall import waterfall

    begin = (f"claim: {values['claim']['name']}", values["claim"]["score"])
    steps = [(each["about"], each["score"]) for each in values["steps"]]
    return waterfall(begin, steps, (values["system"]["about"], values["system"]["score"]), theme)
