"""Trace one pair through a run: find the artifacts of the run that exist, and decode one sentence.

Makes no artifact; ``tasks.tracing`` reads them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flows.runner.named_runs import name_run
from flows.runner.recorded_runs import read_runs
from flows.runner.request import RunPlan, RunRequest, make_plan
from flows.runs import Run
from flows.runs.reversal import monolingual_filters
from flows.runs.synthetic import MONOLINGUAL, BackTranslation, Distillation
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.store import Artifact
from tasks.engine.lookup import Hit
from tasks.tracing.steps import BeamRow, Decoded, PairTrace, Trained
from tasks.tracing.trace import MonolingualText, TraceContext, trace

if TYPE_CHECKING:
    from model.decoding.beam_search import BeamEntry
    from model.decoding.translator import Translator

LAST_STAGE = "score"
"""The last stage that handles single pairs."""


def trace_pair(run: str, pair_id: str, overrides: tuple[str, ...] = (), site: str = "local") -> PairTrace:
    """Trace one pair. Raises BadConfiguration for an unknown run or id, BadData for damaged artifacts."""
    request = RunRequest(run, until=LAST_STAGE, overrides=overrides, site=site)
    planned = make_plan(request.resolve())
    resolved = planned.resolved
    traced = trace(trace_context(planned), pair_id, TorchNetwork(resolved.run, resolved.site))
    return replace(traced, notes=(*traced.notes, *_changed_since_recorded(planned)))


def _changed_since_recorded(planned: RunPlan) -> Iterator[str]:
    """Says where the run as it is now has other artifacts than those that its name means (``repro show --path``)."""
    resolved = planned.resolved
    name = resolved.run.name
    store = planned.store
    recorded = name_run(read_runs(store.root, name), name, resolved.request.overrides)
    if recorded.remark:
        return
    keys = {(row.stage, row.item): row.key for row in planned.outcome.rows}
    changed = [stage for (stage, item), key in recorded.artifacts.items() if keys.get((stage, item), key) != key]
    if changed:
        stages = ", ".join(dict.fromkeys(changed))
        yield f"this is the run as it is now; the last record of {name} has other artifacts of {stages}"


def trace_context(planned: RunPlan) -> TraceContext:
    """The artifacts of a run that exist, according to its plan."""
    run = planned.resolved.run
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
    if planned.initial:
        made["learn_bpe", ""] = planned.initial.vocabulary
    how = run.synthetic
    text = how.monolingual if isinstance(how, BackTranslation) else None
    monolingual = MonolingualText(text, monolingual_filters(run), MONOLINGUAL) if text else None
    distilled = isinstance(how, Distillation)
    return TraceContext(
        run.name, run.corpus, run.sets, run.filters, run.sharding, made, reasons, monolingual, distilled
    )


@dataclass(frozen=True)
class TorchNetwork:
    """Implements ``tasks.tracing.trace.Network`` with ``model``; imports torch on first use."""

    run: Run
    site: Site

    def batched(self, training: Artifact, shards: Artifact, row: int) -> Trained:
        from model.data.shards import Shards
        from model.training.setup import sampler_of

        settings = self.run.training
        # The first epoch reads the first segmentation, so its rows have the numbers of the pairs.
        pieces = Shards(shards.path(), drawn=True)
        batches = sampler_of(self.run.model, settings, pieces).epoch(0)
        index = next((index for index, rows in enumerate(batches) if row in rows), None)
        if index is None:
            raise BadConfiguration(
                f"training.mixture is {settings.mixture!r}, which leaves {pieces.pair_id(row)} out of the first epoch; "
                "trace another pair"
            )
        updates = training.facts.get("updates", settings.updates)
        return Trained(str(training.path()), index + 1, len(batches[index]), len(batches), updates)

    def decoded(self, weights: Artifact, vocabulary: Artifact, source: tuple[int, ...]) -> Decoded:
        from model.config.special_pieces import EOS
        from model.decoding.translator import Translator

        threads = self.site.threads_each * self.site.ranks
        translator = Translator.load(weights.path(), vocabulary.path(), self.site.device, threads)
        translator.check_source(source, "the source")
        hypotheses, steps = translator.search_steps(source, self.run.decoding)
        best = hypotheses[0]
        return Decoded(
            str(weights.path()),
            tuple(replace(found, text=translator.text(found)) for found in hypotheses),
            tuple(tuple(_beam_rows(translator, entries)) for entries in steps),
            tuple(translator.vocabulary.source_pieces(translator.source_tokens(source))),
            tuple(translator.vocabulary.target_pieces([*best.pieces, EOS][: best.length])),
            translator.cross_attention(source, best).double().numpy(),
        )


def _beam_rows(translator: "Translator", entries: Iterable["BeamEntry"]) -> Iterable[BeamRow]:
    """The rows of a step: live hypotheses by their rank, those that ended with the piece eos."""
    from model.config.special_pieces import EOS, SPECIAL_TOKENS

    rank = 0
    for entry in entries:
        found = entry.hypothesis
        rank += not found.finished
        (piece,) = (
            [SPECIAL_TOKENS[EOS]] if found.finished else translator.vocabulary.target_pieces(list(found.pieces[-1:]))
        )
        yield BeamRow(
            0 if found.finished else rank,
            entry.parent + 1 if found.length > 1 else 0,
            piece,
            translator.text(found),
            found.score,
            found.log_probability,
            found.length,
            found.finished,
        )
