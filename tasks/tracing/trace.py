"""The red thread: what the artifacts of a run say of one pair, from its raw line to its score.

In come a run's artifacts, made or not, and a ``pair_id``; out goes a ``PairTrace``. Nothing is made here, and nothing
computed but pieces that no shard holds. What needs torch, the batches and the decoding of this one sentence, is handed
in.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from infra.errors import BadConfiguration
from infra.store.local import Artifact
from model.data.bpe import TokenizerPair
from tasks import corpus as reading
from tasks.cleaning.filter_evidence import filter_evidence
from tasks.cleaning.filters import SIDES, Distinct, Filters, NotIn
from tasks.cleaning.partitions import normalise_sides
from tasks.corpus.catalogue import Corpus, EvaluationSet, Part, Text
from tasks.stages.shard import Sharding
from tasks.tracing.steps import (
    Cleaned,
    Decoded,
    Dropped,
    Encoded,
    Missing,
    PairTrace,
    Published,
    RuleVerdict,
    Scored,
    Sharded,
    Step,
    Trained,
    Translated,
)


@dataclass(frozen=True)
class TraceContext:
    """What a walk goes over: the parts of a run that pairs meet, and its artifacts by (stage, item)."""

    run: str
    corpus: Corpus
    sets: tuple[EvaluationSet, ...]
    filters: Filters
    sharding: Sharding
    made: Mapping[tuple[str, str], Artifact]
    missing: Mapping[tuple[str, str], str]
    """Why an artifact is not there."""
    doubts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """What is to be said of one that is: it may be made anew, since an input of it is gone."""


class Network(Protocol):
    """What only torch can tell."""

    def batched(self, training: Artifact, shards: Artifact, row: int) -> Trained:
        """Where the batches of the first epoch have a row (counted over all shards)."""
        ...

    def decoded(self, weights: Artifact, vocabulary: Artifact, source: tuple[int, ...]) -> Decoded:
        """The beams of one source."""
        ...


def trace(context: TraceContext, pair_id: str, network: Network) -> PairTrace:
    """The walk of a pair. Raises BadConfiguration with examples of what there is where the run has no such pair."""
    name, _, number = pair_id.rpartition(":")
    sets = {each.name: each for each in context.sets}
    parts = {part.name: part for part in context.corpus.parts}
    plain = number.isdecimal() and number.isascii() and str(int(number)) == number
    if not plain or not (name in parts or name in sets):
        raise unknown_pair(context, pair_id)
    tracing = _PairTracer(context, pair_id, int(number), network)
    steps = tracing.of_corpus(parts[name]) if name in parts else tracing.of_set(sets[name])
    return PairTrace(context.run, pair_id, "" if name in parts else name, tuple(steps), tuple(tracing.notes))


def unknown_pair(context: TraceContext, pair_id: str) -> BadConfiguration:
    """The fault that names the nearest ids and what the run has."""
    counts = {**_counts_of_parts(context), **_counts_of_sets(context)}
    told = [
        f"{name} ({count:,} pairs, {name}:0 to {name}:{count - 1})" if count else f"{name} (not read yet)"
        for name, count in counts.items()
    ]
    name, _, number = pair_id.rpartition(":")
    nearest = ""
    read = [each for each, count in counts.items() if count]
    if near := difflib.get_close_matches(name or pair_id, read, n=1, cutoff=0.5):
        line = int(number) if number.isdecimal() else 0
        nearest = f"; the nearest is {near[0]}:{min(line, counts[near[0]] - 1)}"
    return BadConfiguration(f"unknown pair_id {pair_id!r}: the run {context.run} has {', '.join(told)}{nearest}")


def _counts_of_parts(context: TraceContext) -> dict[str, int]:
    counts = {part.name: 0 for part in context.corpus.parts}
    if clean := context.made.get(("clean", "")):
        files = [clean.path() / name for name in ("pairs.parquet", "rejected.parquet")]
        frame = pl.concat(pl.scan_parquet(file).select("corpus") for file in files)
        counts |= dict(frame.group_by("corpus").len().collect().iter_rows())
    return counts


def _counts_of_sets(context: TraceContext) -> dict[str, int]:
    made = {each.name: context.made.get(("prepare_sets", each.name)) for each in context.sets}
    return {name: int(artifact.facts["pairs"]) if artifact else 0 for name, artifact in made.items()}


class _PairTracer:
    """The walk of one pair, on its way."""

    def __init__(self, context: TraceContext, pair_id: str, line: int, network: Network) -> None:
        self.context, self.pair_id, self.line, self.network = context, pair_id, line, network
        self.notes: list[str] = []

    def find(self, stage: str, item: str = "") -> Artifact | Missing:
        """The artifact, or why there is none."""
        place, label = (stage, item), f"{stage} {item}".strip()
        if place not in self.context.made:
            return Missing(label, self.context.missing.get(place, "not made yet"))
        if place in self.context.doubts:
            self.notes.append(f"{label}: {self.context.doubts[place]}")
        return self.context.made[place]

    def of_corpus(self, part: Part) -> Iterator[Step]:
        """A training pair: read, judged, and if it was kept encoded and trained on."""
        texts = part.source, part.target
        archives = [self.find("download", text.file.path) for text in texts]
        there = [archive for archive in archives if isinstance(archive, Artifact)]
        if len(there) == len(archives):
            yield self.published(texts, there)
        else:
            yield from dict.fromkeys(archive for archive in archives if isinstance(archive, Missing))
        clean = self.find("clean")
        if isinstance(clean, Missing):
            yield clean
            return
        cleaned = self.cleaned(clean)
        yield cleaned
        if not cleaned.rejected_by:
            yield from self.of_pieces("train", cleaned.source, cleaned.target)

    def of_set(self, evaluation: EvaluationSet) -> Iterator[Step]:
        """A pair of a dev or test set: encoded as it was published, translated, scored."""
        prepared = self.find("prepare_sets", evaluation.name)
        if isinstance(prepared, Missing):
            yield prepared
            return
        row = _row(prepared.path() / "pairs.parquet", self.pair_id)
        if row is None:
            raise unknown_pair(self.context, self.pair_id)
        files = _name(evaluation.source), _name(evaluation.target)
        source, target = row["source"], row["target"]
        yield Published("prepare_sets", str(prepared.path()), files, self.line, source, target)
        yield from self.of_pieces(evaluation.name, source, target)

    def of_pieces(self, item: str, source: str, target: str) -> Iterator[Step]:
        """What becomes of text that is encoded; ``item`` is a set, or ``train``."""
        vocabulary = self.find("learn_bpe")
        if isinstance(vocabulary, Missing):
            yield vocabulary
            return
        pieces, shards = TokenizerPair.load(vocabulary.path()), self.find("shard", item)
        place = _find_in_shards(shards.path(), self.pair_id) if isinstance(shards, Artifact) else None
        if place:
            ids = place.source, place.target
        else:
            ids = tuple(pieces.encode_source([source])[0]), tuple(pieces.encode_target([target])[0])
        names = tuple(pieces.source_pieces(ids[0])), tuple(pieces.target_pieces(ids[1]))
        yield Encoded(str(vocabulary.path()), names[0], ids[0], names[1], ids[1])
        if isinstance(shards, Missing):
            yield shards
        elif place is None:
            yield Dropped(str(shards.path()), _limit(self.context.sharding, len(ids[0]), len(ids[1])))
            return
        else:
            yield Sharded(str(shards.path()), place.file, place.row)
        if item != "train":
            yield from self.of_hypothesis(item, vocabulary, ids[0])
            return
        training = self.find("train")
        if isinstance(training, Artifact) and isinstance(shards, Artifact) and place:
            yield self.network.batched(training, shards, place.before + place.row)
        elif isinstance(training, Missing):
            yield training

    def of_hypothesis(self, item: str, vocabulary: Artifact, source: tuple[int, ...]) -> Iterator[Step]:
        """What the model writes for a source, and what that is worth."""
        for stage in ("translate", "average", "score"):
            artifact = self.find(stage, "" if stage == "average" else item)
            if isinstance(artifact, Missing):
                yield artifact
            elif stage == "average":
                yield self.network.decoded(artifact, vocabulary, source)
            elif stage == "translate":
                row = _row_of(artifact.path() / "hypotheses.parquet", self.pair_id)
                yield Translated(str(artifact.path()), **_fields_of(Translated, row))
            else:
                row = _row_of(artifact.path() / "sentences.parquet", self.pair_id)
                yield Scored(str(artifact.path()), **_fields_of(Scored, row))

    def published(self, texts: tuple[Text, Text], archives: list[Artifact]) -> Published:
        """The line as it was read."""
        paths = [archive.path() / text.file.name for archive, text in zip(archives, texts, strict=True)]
        first = 0
        for frame in reading.read(texts, (paths[0], paths[1])):
            if self.line < first + frame.height:
                source, target = frame.row(self.line - first)
                files = _name(texts[0]), _name(texts[1])
                return Published("download", str(archives[0].path()), files, self.line, source, target)
            first += frame.height
        raise unknown_pair(self.context, self.pair_id)

    def cleaned(self, clean: Artifact) -> Cleaned:
        """What ``clean`` recorded, and each rule's word."""
        for file in ("pairs.parquet", "rejected.parquet"):
            row = _row(clean.path() / file, self.pair_id)
            if row is not None:
                by = row.get("filter", "")
                said = tuple(self.verdicts(clean, row["source"], row["target"], by))
                return Cleaned(str(clean.path()), file, row["row"], row["source"], row["target"], by, said)
        raise unknown_pair(self.context, self.pair_id)

    def verdicts(self, clean: Artifact, source: str, target: str, rejected_by: str) -> Iterator[RuleVerdict]:
        """Each rule's verdict: those before the one that clean recorded let the pair pass, those behind saw it not."""
        pair = pl.DataFrame({"source": [source], "target": [target]}, schema=dict.fromkeys(SIDES, pl.String))
        asked = True
        for rule in self.context.filters.rules:
            if not asked:
                yield RuleVerdict(rule.name, "not asked")
                continue
            found, allowed = filter_evidence(rule, pair)
            asked = rule.name != rejected_by
            if asked:
                yield RuleVerdict(rule.name, "kept", found, allowed)
            elif isinstance(rule, Distinct):
                yield RuleVerdict(rule.name, "rejected", self.first_occurrence(clean, rule, source, target))
            elif isinstance(rule, NotIn):
                yield RuleVerdict(rule.name, "rejected", self.matching_set_line(source, target))
            else:
                yield RuleVerdict(rule.name, "rejected", found, allowed)

    def first_occurrence(self, clean: Artifact, rule: Distinct, source: str, target: str) -> str:
        """Which pair the rule saw first: the first in reading order of those that the rules before it let pass."""
        names = [each.name for each in self.context.filters.rules]
        behind = names[names.index(rule.name) + 1 :]
        sides = [side for side in SIDES if rule.on in ("pair", side)]
        text = pl.DataFrame({"source": source, "target": target}).select(map(rule.compared, sides))
        same = pl.all_horizontal(rule.compared(side) == text[side].item() for side in sides)
        kept = pl.scan_parquet(clean.path() / "pairs.parquet").filter(same)
        later = pl.scan_parquet(clean.path() / "rejected.parquet").filter(same & pl.col("filter").is_in(behind))
        ids = pl.concat(frame.select("pair_id") for frame in (kept, later)).collect()["pair_id"].to_list()
        parts = [part.name for part in self.context.corpus.parts]
        first = sorted(ids, key=lambda each: (parts.index(each.rpartition(":")[0]), int(each.rpartition(":")[2])))
        return f"repeats {first[0]}" if first else ""

    def matching_set_line(self, source: str, target: str) -> str:
        """Which line of an excluded set a side equals."""
        for name in self.context.filters.exclude:
            prepared = self.find("prepare_sets", name)
            if isinstance(prepared, Missing):
                continue
            lines = normalise_sides(pl.read_parquet(prepared.path() / "pairs.parquet"), self.context.filters.normalise)
            for side, text in zip(SIDES, (source, target), strict=True):
                found = lines.filter(pl.col(side) == text)
                if found.height:
                    return f"{side} is that of {found['pair_id'][0]}"
        return ""


@dataclass(frozen=True)
class _ShardRow:
    """A row of a file of shards; ``before`` are the rows of the files before it."""

    file: str
    row: int
    before: int
    source: tuple[int, ...]
    target: tuple[int, ...]


def _find_in_shards(shards: Path, pair_id: str) -> _ShardRow | None:
    """Where a pair lies; a scan of ids alone, however large the shards."""
    before = 0
    for path in sorted(shards.glob("*.arrow")):
        first = 0
        with pa.memory_map(str(path)) as memory:
            reader = pa.ipc.open_file(memory)
            for batch in (reader.get_batch(i) for i in range(reader.num_record_batches)):
                at = pc.index(batch.column("pair_id"), pair_id).as_py()
                if at >= 0:
                    source, target = (tuple(batch.column(side)[at].as_py()) for side in SIDES)
                    return _ShardRow(path.name, first + at, before, source, target)
                first += batch.num_rows
        before += first
    return None


def _limit(sharding: Sharding, source: int, target: int) -> str:
    """Which limit of ``sharding`` the pair is beyond."""
    shorter, longer = min(source, target), max(source, target)
    if longer > sharding.max_pieces:
        return f"{longer:,} pieces on one side, more than sharding.max_pieces {sharding.max_pieces}"
    if shorter < sharding.min_pieces:
        return f"{shorter:,} pieces on one side, fewer than sharding.min_pieces {sharding.min_pieces}"
    ratio = longer / max(shorter, 1)
    return f"{ratio:.2f} pieces for each of the other side, above sharding.max_ratio {sharding.max_ratio:g}"


def _row(table: Path, pair_id: str) -> dict[str, Any] | None:
    """The pair's row of a Parquet file, and its number as ``row``."""
    found = pl.scan_parquet(table).with_row_index("row").filter(pl.col("pair_id") == pair_id).collect()
    return found.row(0, named=True) if found.height else None


def _row_of(table: Path, pair_id: str) -> dict[str, Any]:
    row = _row(table, pair_id)
    assert row, f"{table} has a row for each pair of the set"
    return row


def _fields_of(step: type[Translated] | type[Scored], row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that the step holds; a table may have more."""
    return {each.name: row[each.name] for each in fields(step) if each.name in row}


def _name(text: Text) -> str:
    return ":".join(filter(None, (text.file.path, text.member, text.column)))
