"""One pair's walk through a run: which artifacts of it are there, and what the network says of this one sentence.

Looks, as a plan does, and decodes one sentence; makes nothing.
"""

from dataclasses import dataclass

from flows.runner.run import RunRequest, plan
from flows.runs import Run
from flows.runs.initial_weights import initial_weights_of
from infra.site import Site, open_store
from infra.store.local import Artifact
from tasks.tracing.steps import Beam, Decoded, PairTrace, Trained
from tasks.tracing.trace import TraceContext, trace

LAST_STAGE = "score"
"""The last stage that meets single pairs."""


def trace_pair(run: str, pair_id: str, overrides: tuple[str, ...] = (), site: str = "local") -> PairTrace:
    """The walk. Raises BadConfiguration for a word that is not known, BadData for artifacts that are not whole."""
    request = RunRequest(run, until=LAST_STAGE, overrides=overrides, site=site)
    asked, place, _ = request.resolve()
    return trace(trace_context(request), pair_id, TorchNetwork(asked, place))


def trace_context(request: RunRequest) -> TraceContext:
    """The artifacts of a run that are there, by what a plan of it says."""
    run, site, _ = request.resolve()
    store = open_store(site)
    made: dict[tuple[str, str], Artifact] = {}
    missing: dict[tuple[str, str], str] = {}
    doubts: dict[tuple[str, str], str] = {}
    for row in plan(request).rows:
        place = row.stage, row.item
        manifest = store.manifest(row.stage, row.key) if row.state in ("hit", "waits") else None
        if manifest is None or (row.state == "waits" and store.damage(manifest)):
            missing[place] = row.why
            continue
        made[place] = store.artifact(manifest)
        if row.state == "waits":
            doubts[place] = row.why
    if start := initial_weights_of(run, site):
        made["learn_bpe", ""] = start.vocabulary
    return TraceContext(run.name, run.corpus, run.sets, run.filters, run.sharding, made, missing, doubts)


@dataclass(frozen=True)
class TorchNetwork:
    """``tasks.tracing.trace.Network`` by ``model``; torch is loaded when it is asked."""

    run: Run
    site: Site

    def batched(self, training: Artifact, shards: Artifact, row: int) -> Trained:
        from model.data.batches import BatchSampler
        from model.data.shards import Shards

        settings = self.run.training
        plan = BatchSampler(Shards(shards.path()), settings.batch_tokens, settings.seed, settings.batching)
        batches = plan.epoch(0)
        at = next(number for number, rows in enumerate(batches) if row in rows)
        made = training.facts.get("updates", settings.updates)
        return Trained(str(training.path()), at + 1, len(batches[at]), len(batches), made)

    def decoded(self, weights: Artifact, vocabulary: Artifact, source: tuple[int, ...]) -> Decoded:
        from model.config.special_pieces import EOS, SPECIAL_TOKENS
        from model.decoding.translator import Translator

        threads = self.site.threads_each * self.site.ranks
        translator = Translator.load(weights.path(), vocabulary.path(), self.site.device, threads)
        translator.check_source(source, "the source")
        (found,) = translator.search_n_best([source], self.run.decoding, self.run.decoding.beam)
        best = found[0]
        beams = tuple(Beam(translator.text(h), h.score, h.log_probability, h.length, h.finished) for h in found)
        written = [*best.pieces, EOS][: best.length]
        return Decoded(
            str(weights.path()),
            beams,
            (*translator.vocabulary.source_pieces(source), SPECIAL_TOKENS[EOS]),
            tuple(translator.vocabulary.target_pieces(written)),
            translator.cross_attention(source, best).double().numpy(),
        )
