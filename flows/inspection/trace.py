"""Follows one sentence pair through the artifacts of a run, from the raw line to its score. Makes no artifact.

A trace is a list of steps, one for each stage that handled the pair:

    missing     why                                       a stage without an artifact
    published   files, line, source, target               the line as published; lines count from 0
    cleaned     file, row, source, target, rejected_by, verdicts
    mixed       source, target                            a monolingual line as the target of a synthetic pair
    distilled   translations, target                      what the teacher wrote, best first, and the one that is taken
    encoded     pieces and ids of both sides              in the run's vocabulary, without bos and eos
    sharded     file, row                                 the shard that holds the pieces; rows count within the file
    dropped     why                                       no shard holds a pair outside the limits of ``sharding``
    trained     update, pairs, epoch_updates, updates     the update of the first epoch whose batch holds the pair
    translated  the row of ``hypotheses.parquet``
    decoded     beams, steps, pieces, attended            the sentence decoded again, alone
    scored      the row of ``sentences.parquet``

All steps except ``missing`` name the ``folder`` of the artifact.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.inspection.trace_network import batch_of, decode
from flows.runner.request import RunPlan, RunRequest, make_plan
from flows.runs import Run
from flows.runs.reversal import monolingual_filters
from flows.runs.synthetic import MONOLINGUAL, BackTranslation, Distillation
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.store import Artifact
from model.data.bpe import TokenizerPair
from tasks.cleaning.filters import SIDES, Filters
from tasks.cleaning.rejections import filter_evidence
from tasks.corpus import reading
from tasks.corpus.catalogue import EvaluationSet, Part, Text
from tasks.engine.lookup import Hit
from tasks.stages.extract_best import sentence_bleus
from tasks.stages.mix import PREFIX

Row = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """What one stage did to the pair. ``says`` is a sentence for people, ``values`` is the same as JSON."""

    kind: str
    stage: str
    says: str
    values: Mapping[str, Any]
    weights: NDArray[np.float64] | None = field(default=None, compare=False)
    """Cross-attention of a decoded pair (layers, heads, target pieces, source pieces), including eos."""


@dataclass(frozen=True)
class PairTrace:
    """Everything that a run stores about one pair. ``set_name`` is empty for a pair of the corpus."""

    run: str
    pair_id: str
    set_name: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    """One line per artifact that was read although the next run may replace it."""

    def as_json(self) -> dict[str, Any]:
        steps = [{"step": step.kind, "stage": step.stage, **step.values} for step in self.steps]
        return {**vars(self), "steps": steps}


@dataclass(frozen=True)
class RunArtifacts:
    """The existing artifacts of a run, by stage and item."""

    made: Mapping[tuple[str, str], Artifact]
    reasons: Mapping[tuple[str, str], str]
    """Why an artifact is missing; for an artifact in ``made``, why the next run may replace it."""


def find_made(planned: RunPlan) -> RunArtifacts:
    store = planned.store
    made: dict[tuple[str, str], Artifact] = {}
    reasons: dict[tuple[str, str], str] = {}
    for row in planned.outcome.rows:
        found = planned.lookups[row.key]
        if isinstance(found, Hit):
            made[row.stage, row.item] = found.artifact
            continue
        if row.waits_for and found.manifest and not store.damage(found.manifest):
            made[row.stage, row.item] = store.artifact(found.manifest)
        waits = f"runs if the output of {', '.join(row.waits_for)} changes" if row.waits_for else ""
        reasons[row.stage, row.item] = "; ".join([waits or f"{found}", *row.changes])
    if planned.initial and planned.initial.vocabulary:
        made["learn_bpe", ""] = planned.initial.vocabulary[0]
    return RunArtifacts(made, reasons)


def trace_pair(run: str, pair_id: str, overrides: tuple[str, ...] = (), site: str = "local") -> PairTrace:
    """Trace one pair. Raises BadConfiguration for an unknown run or id, BadData for damaged artifacts."""
    overrides = (*overrides, "filters.max_rejected=1")  # pairs of a refused text can be traced too
    planned = make_plan(RunRequest(run, until="score", overrides=overrides, site=site).resolve())
    return trace(planned.resolved.run, planned.resolved.site, find_made(planned), pair_id)


def trace(run: Run, site: Site, found: RunArtifacts, pair_id: str) -> PairTrace:
    """Trace one pair. Raises BadConfiguration if the run has no such pair."""
    name, _, number = pair_id.rpartition(":")
    tracer = _Tracer(run, site, found, pair_id)
    if not (number.isdecimal() and number.isascii() and str(int(number)) == number):
        raise tracer.unknown_pair()
    parts = {part.name: part for part in run.corpus.parts}
    sets = {each.name: each for each in run.sets}
    synthetic = {PREFIX + part.name: part for part in tracer.monolingual.parts} if tracer.monolingual else {}
    if name in synthetic:
        tracer.follow_monolingual_line(synthetic[name], int(number))
    elif name in parts:
        tracer.follow_training_pair(parts[name], int(number))
    elif name in sets:
        tracer.follow_set_pair(sets[name], int(number))
    else:
        raise tracer.unknown_pair()
    return PairTrace(run.name, pair_id, name if name in sets else "", tuple(tracer.steps), tuple(tracer.notes))


class _Tracer:
    """Collects the steps of one pair, and notes on the artifacts that it reads."""

    def __init__(self, run: Run, site: Site, found: RunArtifacts, pair_id: str) -> None:
        self.run = run
        self.site = site
        self.found = found
        self.pair_id = pair_id
        self.steps: list[Step] = []
        self.notes: list[str] = []
        synthetic = self.run.synthetic
        self.monolingual = synthetic.monolingual if isinstance(synthetic, BackTranslation) else None

    def add(
        self, kind: str, artifact: Artifact, says: str, weights: NDArray[np.float64] | None = None, **values: Any
    ) -> None:
        found = {"folder": f"{artifact.path()}", **values}
        self.steps.append(Step(kind, artifact.stage, says, found, weights))

    def find(self, stage: str, item: str = "") -> Artifact | None:
        """Return the artifact; if it is missing, return None and add a step that says why."""
        label = f"{stage} {item}".strip()
        reason = self.found.reasons.get((stage, item), "")
        artifact = self.found.made.get((stage, item))
        if artifact is None:
            why = reason or "not made yet"
            step = Step("missing", label, f"not there: {why}", {"why": why})
            if step not in self.steps:  # both sides may be in the same missing archive
                self.steps.append(step)
        elif reason:
            self.notes.append(f"{label}: {reason}")
        return artifact

    def follow_training_pair(self, part: Part, line: int) -> None:
        cleaned = self.clean(part, line, self.run.filters, self.pair_id)
        if cleaned and isinstance(self.run.synthetic, Distillation):
            self.distil(cleaned, self.run.synthetic)
        elif cleaned:
            self.encode("train", cleaned["source"], cleaned["target"])

    def follow_monolingual_line(self, part: Part, line: int) -> None:
        """Follow a line of the monolingual text: read, cleaned; if kept, back-translated, encoded, trained on."""
        assert self.monolingual
        pair_id = self.pair_id.removeprefix(PREFIX)
        cleaned = self.clean(part, line, monolingual_filters(self.run), pair_id, MONOLINGUAL)
        mixture = self.find("mix") if cleaned else None
        if not cleaned or not mixture:
            return
        pair = _row(mixture.path() / "pairs.parquet", self.pair_id)
        says = "the target of a synthetic pair"
        if not pair:
            says = "not translated: beyond synthetic.lines, too long, or without an end; its walk ends here"
        source = pair["source"] if pair else ""
        self.add("mixed", mixture, says, source=source, target=cleaned["target"])
        if pair:
            self.encode("train", source, pair["target"])

    def follow_set_pair(self, evaluation: EvaluationSet, line: int) -> None:
        """Follow a pair of a dev or test set: encoded as published, translated, scored."""
        prepared = self.find("prepare_sets", evaluation.name)
        if not prepared:
            return
        row = _row(prepared.path() / "pairs.parquet", self.pair_id)
        if row is None:
            raise self.unknown_pair()
        texts = evaluation.source, evaluation.target
        noise = "".join(f", changed by {rule}" for rule in evaluation.noise)
        self.publish(prepared, texts, line, (row["source"], row["target"]), noise)
        self.encode(evaluation.name, row["source"], row["target"])

    def publish(
        self, artifact: Artifact, texts: tuple[Text, Text], line: int, pair: tuple[Any, ...], noise: str = ""
    ) -> None:
        files = tuple(":".join(filter(None, (text.file.path, text.member, text.column))) for text in texts)
        says = f"line {line:,} (counted from 0) of {' and '.join(dict.fromkeys(files))}{noise}"
        self.add("published", artifact, says, files=files, line=line, source=pair[0], target=pair[1])

    def clean(self, part: Part, line: int, filters: Filters, pair_id: str, item: str = "") -> Row | None:
        """Add a training pair as published and as cleaned; return its row if it was kept."""
        texts = part.source, part.target
        archives = [found for text in texts if (found := self.find("download", text.file.path))]
        if len(archives) == len(texts):
            paths = [archive.path() / text.file.name for archive, text in zip(archives, texts, strict=True)]
            self.publish(archives[0], texts, line, self.raw_line(texts, (paths[0], paths[1]), line))
        clean = self.find("clean", item)
        if not clean:
            return None
        kept = _row(clean.path() / "pairs.parquet", pair_id)
        row = kept or _row(clean.path() / "rejected.parquet", pair_id)
        if row is None:
            raise self.unknown_pair()
        rejected_by = row.get("filter", "")
        file = "pairs.parquet" if kept else "rejected.parquet"
        said = f"rejected by {rejected_by}: row {row['row']:,} of {file}; its walk ends here"
        self.add(
            "cleaned",
            clean,
            f"kept: row {row['row']:,} of the shuffled {file}" if kept else said,
            file=file,
            **{name: row[name] for name in ("row", *SIDES)},
            rejected_by=rejected_by,
            verdicts=_verdicts(filters, row),
        )
        return kept

    def raw_line(self, texts: tuple[Text, Text], paths: tuple[Path, Path], line: int) -> tuple[Any, ...]:
        """Read the line as the stage ``clean`` reads it."""
        first = 0
        for frame in reading.read_pairs(texts, paths):
            if line < first + frame.height:
                return frame.row(line - first)
            first += frame.height
        raise self.unknown_pair()

    def distil(self, cleaned: Row, distillation: Distillation) -> None:
        """Follow a training source with a teacher's translation as target: the translations, then as any pair."""
        translated = self.find("translate_text")
        extracted = self.find("extract_best")
        if not translated or not extracted:
            return
        written = _row(sorted(translated.path().glob("*.parquet")), self.pair_id)
        hypotheses = written["hypotheses"] if written else []
        run = self.run
        language, lowercase = run.corpus.target_language, run.vocabulary.lowercase
        scores = sentence_bleus(hypotheses, cleaned["target"], language, lowercase)
        best = scores.index(max(scores)) if scores else 0
        # With synthetic.references, another row of this pair has the reference.
        pair = _row(extracted.path() / "pairs.parquet", self.pair_id) if hypotheses else None
        says = "the target is the teacher's translation that is nearest to the reference"
        if not pair:
            says = "no translation by the teacher ended, or the source is too long; its walk ends here"
        if distillation.references:
            says += "; the reference is a further pair"
        self.add(
            "distilled",
            extracted,
            says,
            translations=[
                {"text": text, "bleu": round(score, 4), "taken": number == best}
                for number, (text, score) in enumerate(zip(hypotheses, scores, strict=True))
            ],
            target=pair["target"] if pair else "",
        )
        if pair:
            self.encode("train", pair["source"], pair["target"])

    def encode(self, item: str, source: str, target: str) -> None:
        """Add the steps of an encoded pair; ``item`` is ``train``, or a set: its sources are read as in translation."""
        vocabulary = self.find("learn_bpe")
        if not vocabulary:
            return
        tokenizers = TokenizerPair.load(vocabulary.path())
        shards = self.found.made.get(("shard", item))
        files = sorted(shards.path().glob("*.arrow")) if shards else []
        row = _row(files, self.pair_id) if files else None
        source_ids = tokenizers.encode_source([source])[0]
        target_ids = tokenizers.encode_target([target])[0]
        if item != "train":
            in_use = tokenizers.normalising(self.run.filters.normalise)
            source_ids = in_use.encode_source(in_use.read([source]))[0]
        elif row and self.run.sharding.too_long != "cut" and len(row["target"]) != len(target_ids):
            row = None  # it is the reference beside a teacher's translation that was dropped
        self.add(
            "encoded",
            vocabulary,
            f"{len(source_ids)} source pieces, {len(target_ids)} target pieces",
            source_pieces=tokenizers.source_pieces(source_ids),
            source_ids=source_ids,
            target_pieces=tokenizers.target_pieces(target_ids),
            target_ids=target_ids,
        )
        if self.find("shard", item) and shards and not row:
            limits = self.run.sharding
            why = (
                f"{len(source_ids):,} and {len(target_ids):,} pieces, allowed by sharding are min_pieces "
                f"{limits.min_pieces}, max_pieces {limits.max_pieces}, max_ratio {limits.max_ratio:g}"
            )
            self.add("dropped", shards, f"left out: {why}; its walk ends here", why=why)
            return
        if shards and row:
            file = Path(row["file"])
            earlier = pl.scan_ipc(files[: files.index(file)]) if file != files[0] else pl.LazyFrame()
            number = row["row"] - earlier.select(pl.len()).collect().item()
            says = f"row {number:,} of {file.name}"
            kept = len(row["source"]), len(row["target"])
            if item == "train" and kept != (len(source_ids), len(target_ids)):
                says += f", cut to {kept[0]} and {kept[1]} pieces"
            self.add("sharded", shards, says, file=file.name, row=number)
        if item != "train":
            self.translate(item, vocabulary, tuple(source_ids))
        elif (training := self.find("train")) and shards and row:
            self.add("trained", training, **batch_of(self.run, training, shards, row["row"]))

    def translate(self, item: str, vocabulary: Artifact, source: tuple[int, ...]) -> None:
        """Add the steps of a set's pair after encoding: hypothesis, beam, scores."""
        if translated := self.find("translate", item):
            row = self.table_row(translated, "hypotheses.parquet")
            says = "by the best of the beam" if row["finished"] else "cut at the greatest length"
            self.add("translated", translated, says, **row)
        if weights := self.find("average"):
            values, attention = decode(self.run.decoding, self.site, weights, vocabulary, source)
            self.add("decoded", weights, "once more, this sentence alone", attention, **values)
        if scored := self.find("score", item):
            row = self.table_row(scored, "sentences.parquet")
            self.add("scored", scored, f"sentence BLEU {row['bleu']:.1f}, chrF {row['chrf']:.1f}", **row)

    def table_row(self, artifact: Artifact, file: str) -> Row:
        """Return the row of the pair without the columns of earlier steps."""
        row = _row(artifact.path() / file, self.pair_id)
        assert row, f"{file} has a row for each pair of the set"
        return {name: value for name, value in row.items() if name not in ("row", "pair_id", "source")}

    def unknown_pair(self) -> BadConfiguration:
        synthetic = [PREFIX + part.name for part in self.monolingual.parts] if self.monolingual else []
        names = [*(part.name for part in self.run.corpus.parts), *synthetic, *(each.name for each in self.run.sets)]
        return BadConfiguration(
            f"unknown pair_id {self.pair_id!r}: the run {self.run.name} has pairs of {', '.join(names)}; allowed is "
            f"such a name, a colon and the number of one of its lines, from 0, as in {names[0]}:0"
        )


def _verdicts(filters: Filters, row: Row) -> list[dict[str, str]]:
    """List ``rule``, ``said`` (kept, rejected, not asked), ``measured``, ``allowed`` per rule for a row of ``clean``.

    Rules before the recorded one kept the pair; rules after it were not applied.
    """
    pair = pl.DataFrame({side: [row[side]] for side in SIDES}, schema=dict.fromkeys(SIDES, pl.String))
    verdicts = []
    said = "kept"
    for rule in filters.rules:
        if said != "kept":
            said = "not asked"
        elif rule.name == row.get("filter", ""):
            said = "rejected"
        measured, allowed = ("", "") if said == "not asked" else filter_evidence(rule, pair)
        verdicts.append({"rule": rule.name, "said": said, "measured": measured, "allowed": allowed})
    return verdicts


def _row(files: Path | list[Path], pair_id: str) -> Row | None:
    """Find the row of the pair in Parquet or Arrow files; ``row`` is its index over all files."""
    if isinstance(files, Path) or files[0].suffix == ".parquet":
        table = pl.scan_parquet(files)
    else:
        table = pl.scan_ipc(files, include_file_paths="file")
    found = table.with_row_index("row").filter(pl.col("pair_id") == pair_id).collect()
    return found.row(0, named=True) if found.height else None
