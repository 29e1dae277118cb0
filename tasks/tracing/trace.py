"""Collect what the artifacts of a run hold about one pair, from its raw line to its score.

``trace`` takes the artifacts that exist and a ``pair_id`` and returns a ``PairTrace``. It makes no artifact. The caller
passes the two steps that need torch (the batch of the pair, and decoding its sentence) as a ``Network``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from infra.errors import BadConfiguration
from infra.store.store import Artifact
from model.data.bpe import TokenizerPair
from tasks.cleaning.filters import SIDES, Distinct, Filter, Filters, NotIn
from tasks.cleaning.partitions import normalise_sides
from tasks.cleaning.rejections import filter_evidence
from tasks.corpus import reading
from tasks.corpus.catalogue import Corpus, EvaluationSet, Part, Text
from tasks.stages.extract_best import nearest, sentence_bleus
from tasks.stages.mix import PREFIX
from tasks.stages.shard import Sharding
from tasks.tracing.steps import (
    Cleaned,
    Decoded,
    Distilled,
    Dropped,
    Encoded,
    Missing,
    Mixed,
    PairTrace,
    Published,
    RuleVerdict,
    Scored,
    Sharded,
    Step,
    TeacherTranslation,
    Trained,
    Translated,
)

Row = dict[str, Any]


@dataclass(frozen=True)
class MonolingualText:
    """The text that a run translates back, and its filters."""

    corpus: Corpus
    filters: Filters
    item: str
    """The item of its ``clean``."""


@dataclass(frozen=True)
class TraceContext:
    """The parts of a run that single pairs go through, and its artifacts by (stage, item)."""

    run: str
    corpus: Corpus
    sets: tuple[EvaluationSet, ...]
    filters: Filters
    sharding: Sharding
    made: Mapping[tuple[str, str], Artifact]
    reasons: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Why an artifact is missing; for an artifact in ``made``, why the next run may replace it."""
    monolingual: MonolingualText | None = None
    """None for a run without back-translation."""
    distilled: bool = False
    """Whether the run's model is trained on a teacher's translations of the corpus."""


class Network(Protocol):
    """The steps that need torch."""

    def batched(self, training: Artifact, shards: Artifact, row: int) -> Trained:
        """Find the batch of the first epoch that holds a row, counted over all shards."""
        ...

    def decoded(self, weights: Artifact, vocabulary: Artifact, source: tuple[int, ...]) -> Decoded:
        """Decode one source sentence with the averaged weights."""
        ...


def trace(context: TraceContext, pair_id: str, network: Network) -> PairTrace:
    """Trace one pair. Raises BadConfiguration listing the ids that exist if the run has no such pair."""
    name, _, number = pair_id.rpartition(":")
    sets = {each.name: each for each in context.sets}
    parts = {part.name: part for part in context.corpus.parts}
    text = context.monolingual
    synthetic = {PREFIX + part.name: part for part in text.corpus.parts} if text else {}
    canonical = number.isdecimal() and number.isascii() and str(int(number)) == number
    if not canonical or not (name in parts or name in sets or name in synthetic):
        raise unknown_pair(context, pair_id)
    tracer = _PairTracer(context, pair_id, int(number), network)
    if text and name in synthetic:
        steps = tracer.synthetic_steps(text, synthetic[name])
    else:
        steps = tracer.corpus_steps(parts[name]) if name in parts else tracer.set_steps(sets[name])
    return PairTrace(context.run, pair_id, name if name in sets else "", tuple(steps), tuple(tracer.notes))


def unknown_pair(context: TraceContext, pair_id: str) -> BadConfiguration:
    """The error for an unknown id, with the ids that the run has."""
    counts = _lines_read(context.made.get(("clean", "")), context.corpus)
    if text := context.monolingual:
        found = _lines_read(context.made.get(("clean", text.item)), text.corpus)
        counts |= {PREFIX + name: count for name, count in found.items()}
    for each in context.sets:
        prepared = context.made.get(("prepare_sets", each.name))
        counts[each.name] = int(prepared.facts["pairs"]) if prepared else 0
    ids = [f"{name}:0 to {name}:{count - 1}" if count else f"{name} (not read yet)" for name, count in counts.items()]
    return BadConfiguration(f"unknown pair_id {pair_id!r}: the run {context.run} has {', '.join(ids)}")


def _lines_read(clean: Artifact | None, corpus: Corpus) -> dict[str, int]:
    """The lines of each part that ``clean`` read; 0 if it is missing."""
    counts = {part.name: 0 for part in corpus.parts}
    if clean:
        tables = [clean.path() / name for name in ("pairs.parquet", "rejected.parquet")]
        lines = pl.concat(pl.scan_parquet(table).select("corpus") for table in tables)
        counts |= dict(lines.group_by("corpus").len().collect().iter_rows())
    return counts


class _PairTracer:
    """Yields the steps of one pair and collects notes on the artifacts that it reads."""

    def __init__(self, context: TraceContext, pair_id: str, line: int, network: Network) -> None:
        self.context = context
        self.pair_id = pair_id
        self.line = line
        self.network = network
        self.notes: list[str] = []

    def find(self, stage: str, item: str = "") -> Artifact | Missing:
        """The artifact, or the reason why it is missing."""
        label = f"{stage} {item}".strip()
        reason = self.context.reasons.get((stage, item), "")
        artifact = self.context.made.get((stage, item))
        if artifact is None:
            return Missing(label, reason or "not made yet")
        if reason:
            self.notes.append(f"{label}: {reason}")
        return artifact

    def corpus_steps(self, part: Part) -> Iterator[Step]:
        """Steps of a training pair: read and cleaned; if ``clean`` kept it, encoded and trained on."""
        for step in self.cleaned_steps(part):
            yield step
            if not isinstance(step, Cleaned) or step.rejected_by:
                continue
            if self.context.distilled:
                yield from self.distilled_steps(step)
            else:
                yield from self.encoded_steps("train", step.source, step.target)

    def distilled_steps(self, cleaned: Cleaned) -> Iterator[Step]:
        """Steps of a training source whose target is a teacher's translation: the translations, then as any pair."""
        translated = self.find("translate_text")
        extracted = self.find("extract_best")
        for artifact in (translated, extracted):
            if isinstance(artifact, Missing):
                yield artifact
                return
        assert isinstance(translated, Artifact)
        assert isinstance(extracted, Artifact)
        blocks = sorted(translated.path().glob("*.parquet"))
        found = _row(pl.scan_parquet(blocks), self.pair_id)
        hypotheses = found["hypotheses"] if found else []
        scores = sentence_bleus(hypotheses, cleaned.target)
        pair = self.row(extracted.path() / "pairs.parquet")
        best = nearest(scores) if scores else 0
        translations = (
            TeacherTranslation(text, round(score, 4), number == best)
            for number, (text, score) in enumerate(zip(hypotheses, scores, strict=True))
        )
        yield Distilled(str(extracted.path()), tuple(translations), pair["target"] if pair else "")
        if pair:
            yield from self.encoded_steps("train", pair["source"], pair["target"])

    def synthetic_steps(self, text: MonolingualText, part: Part) -> Iterator[Step]:
        """Steps of a line that is translated back: read and cleaned; if kept, translated, encoded and trained on."""
        context = replace(self.context, corpus=text.corpus, filters=text.filters)
        line = _PairTracer(context, self.pair_id.removeprefix(PREFIX), self.line, self.network)
        line.notes = self.notes
        cleaned = None
        for step in line.cleaned_steps(part, text.item):
            yield step
            cleaned = step
        if not isinstance(cleaned, Cleaned) or cleaned.rejected_by:
            return
        mixture = self.find("mix")
        if isinstance(mixture, Missing):
            yield mixture
            return
        pair = self.row(mixture.path() / "pairs.parquet")
        yield Mixed(str(mixture.path()), pair["source"] if pair else "", cleaned.target)
        if pair:
            yield from self.encoded_steps("train", pair["source"], pair["target"])

    def cleaned_steps(self, part: Part, item: str = "") -> Iterator[Step]:
        """A training pair as published and as ``clean`` for ``item`` wrote it."""
        texts = part.source, part.target
        found = [self.find("download", text.file.path) for text in texts]
        archives = [each for each in found if isinstance(each, Artifact)]
        if len(archives) == len(texts):
            yield self.published(texts, archives)
        else:
            yield from dict.fromkeys(each for each in found if isinstance(each, Missing))
        clean = self.find("clean", item)
        yield clean if isinstance(clean, Missing) else self.cleaned(clean)

    def set_steps(self, evaluation: EvaluationSet) -> Iterator[Step]:
        """Steps of a pair of a dev or test set: encoded as published, translated, scored."""
        prepared = self.find("prepare_sets", evaluation.name)
        if isinstance(prepared, Missing):
            yield prepared
            return
        row = self.row(prepared.path() / "pairs.parquet")
        if row is None:
            raise unknown_pair(self.context, self.pair_id)
        files = _name(evaluation.source), _name(evaluation.target)
        yield Published("prepare_sets", str(prepared.path()), files, self.line, row["source"], row["target"])
        yield from self.encoded_steps(evaluation.name, row["source"], row["target"])

    def encoded_steps(self, item: str, source: str, target: str) -> Iterator[Step]:
        """Steps of a pair that is encoded; ``item`` is ``train``, or a set, whose sources are read as in use."""
        vocabulary = self.find("learn_bpe")
        if isinstance(vocabulary, Missing):
            yield vocabulary
            return
        tokenizers = TokenizerPair.load(vocabulary.path())
        shards = self.find("shard", item)
        files = sorted(shards.path().glob("*.arrow")) if isinstance(shards, Artifact) else []
        row = _row(pl.scan_ipc(files, include_file_paths="file"), self.pair_id) if files else None
        if row:
            ids = tuple(row["source"]), tuple(row["target"])
        else:
            ids = tuple(tokenizers.encode_source([source])[0]), tuple(tokenizers.encode_target([target])[0])
        if item != "train":
            reading = tokenizers.normalising(self.context.filters.normalise)
            ids = tuple(reading.encode_source(reading.read([source]))[0]), ids[1]
        pieces = tuple(tokenizers.source_pieces(ids[0])), tuple(tokenizers.target_pieces(ids[1]))
        yield Encoded(str(vocabulary.path()), pieces[0], ids[0], pieces[1], ids[1])
        if isinstance(shards, Missing):
            yield shards
        elif row is None:
            limits = self.context.sharding
            why = (
                f"{len(ids[0]):,} and {len(ids[1]):,} pieces, allowed by sharding are min_pieces {limits.min_pieces}, "
                f"max_pieces {limits.max_pieces}, max_ratio {limits.max_ratio:g}"
            )
            yield Dropped(str(shards.path()), why)
            return
        else:
            file = Path(row["file"])
            earlier = files[: files.index(file)]
            before = sum(pl.scan_ipc(path).select(pl.len()).collect().item() for path in earlier)
            yield Sharded(str(shards.path()), file.name, row["row"] - before)
        if item != "train":
            yield from self.hypothesis_steps(item, vocabulary, ids[0])
            return
        training = self.find("train")
        if isinstance(training, Missing):
            yield training
        elif isinstance(shards, Artifact) and row:
            yield self.network.batched(training, shards, row["row"])

    def hypothesis_steps(self, item: str, vocabulary: Artifact, source: tuple[int, ...]) -> Iterator[Step]:
        """Steps of a pair of a set after encoding: its hypothesis, its beam, its scores."""
        for stage in ("translate", "average", "score"):
            artifact = self.find(stage, "" if stage == "average" else item)
            if isinstance(artifact, Missing):
                yield artifact
            elif stage == "average":
                yield self.network.decoded(artifact, vocabulary, source)
            else:
                table, step = ("hypotheses", Translated) if stage == "translate" else ("sentences", Scored)
                row = self.row(artifact.path() / f"{table}.parquet")
                assert row, f"{table}.parquet has a row for each pair of the set"
                yield step(str(artifact.path()), **{f.name: row[f.name] for f in fields(step) if f.name in row})

    def published(self, texts: tuple[Text, Text], archives: list[Artifact]) -> Published:
        """The line as the stage ``clean`` reads it."""
        paths = [archive.path() / text.file.name for archive, text in zip(archives, texts, strict=True)]
        first = 0
        for frame in reading.read_pairs(texts, (paths[0], paths[1])):
            if self.line < first + frame.height:
                source, target = frame.row(self.line - first)
                files = _name(texts[0]), _name(texts[1])
                return Published("download", str(archives[0].path()), files, self.line, source, target)
            first += frame.height
        raise unknown_pair(self.context, self.pair_id)

    def cleaned(self, clean: Artifact) -> Cleaned:
        """What ``clean`` recorded, with the verdict of each rule."""
        for file in ("pairs.parquet", "rejected.parquet"):
            row = self.row(clean.path() / file)
            if row is not None:
                verdicts = tuple(self.verdicts(clean, row))
                rejected_by = row.get("filter", "")
                return Cleaned(str(clean.path()), file, row["row"], row["source"], row["target"], rejected_by, verdicts)
        raise unknown_pair(self.context, self.pair_id)

    def verdicts(self, clean: Artifact, row: Row) -> Iterator[RuleVerdict]:
        """Rules before the one that ``clean`` recorded kept the pair; rules after it were not applied."""
        pair = pl.DataFrame({side: [row[side]] for side in SIDES}, schema=dict.fromkeys(SIDES, pl.String))
        rejected = False
        for rule in self.context.filters.rules:
            if rejected:
                yield RuleVerdict(rule.name, "not asked")
                continue
            rejected = rule.name == row.get("filter", "")
            found, allowed = self.cause(clean, rule, pair) if rejected else filter_evidence(rule, pair)
            yield RuleVerdict(rule.name, "rejected" if rejected else "kept", found, allowed)

    def cause(self, clean: Artifact, rule: Filter, pair: pl.DataFrame) -> tuple[str, str]:
        """Why the rule rejected the pair: the other line that it found, or what it measured and what it allows."""
        if isinstance(rule, Distinct):
            return self.first_occurrence(clean, rule, pair), ""
        if isinstance(rule, NotIn):
            return self.matching_set_line(pair), ""
        return filter_evidence(rule, pair)

    def first_occurrence(self, clean: Artifact, rule: Distinct, pair: pl.DataFrame) -> str:
        """The first pair, in reading order, of those that the earlier rules kept and that ``rule`` holds for equal."""
        names = [each.name for each in self.context.filters.rules]
        later_rules = names[names.index(rule.name) + 1 :]
        (value,) = rule.values()
        same = value == pair.select(value).item()
        kept = pl.scan_parquet(clean.path() / "pairs.parquet").filter(same)
        rejected = pl.scan_parquet(clean.path() / "rejected.parquet").filter(same & pl.col("filter").is_in(later_rules))
        rows = pl.concat(table.select("corpus", "pair_id") for table in (kept, rejected)).collect().rows()
        parts = [part.name for part in self.context.corpus.parts]
        ids = sorted((parts.index(part), int(pair_id.rpartition(":")[2]), pair_id) for part, pair_id in rows)
        return f"repeats {ids[0][2]}" if ids else ""

    def matching_set_line(self, pair: pl.DataFrame) -> str:
        """The line of an excluded set that equals a side of the pair."""
        for name in self.context.filters.exclude:
            prepared = self.find("prepare_sets", name)
            if isinstance(prepared, Missing):
                continue
            lines = normalise_sides(pl.read_parquet(prepared.path() / "pairs.parquet"), self.context.filters.normalise)
            for side in SIDES:
                found = lines.filter(pl.col(side) == pair[side].item())
                if found.height:
                    return f"{side} is that of {found['pair_id'][0]}"
        return ""

    def row(self, table: Path) -> Row | None:
        """The row of the pair in a Parquet file, and its index as ``row``."""
        return _row(pl.scan_parquet(table), self.pair_id)


def _row(table: pl.LazyFrame, pair_id: str) -> Row | None:
    found = table.with_row_index("row").filter(pl.col("pair_id") == pair_id).collect()
    return found.row(0, named=True) if found.height else None


def _name(text: Text) -> str:
    return ":".join(filter(None, (text.file.path, text.member, text.column)))
