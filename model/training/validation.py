"""Validates on the dev set: perplexity (§6.2) over all ranks, BLEU of greedy translations, and signs of collapse."""

import math
import sys
import time
from dataclasses import dataclass

import torch

from ..config import Decoding, SourceEnds, Training
from ..data.batch import load_padded
from ..data.batches import BatchSampler
from ..data.bpe import TokenizerPair
from ..data.ends import number_of_ends
from ..data.shards import Shards
from ..decoding.translator import Translator
from ..metric_names import DEV_BLEU, DEV_PERPLEXITY
from ..network.transformer import Transformer
from ..numerics import autocast
from .dev_bleu import bleu, tokenize
from .distributed import Ranks
from .loss import Objective
from .metrics import to_perplexity
from .probes import probe

DEV_TOKENS = 8_192
"""Maximum target tokens in a batch of dev text."""
PROBE_SENTENCES = 64
"""Maximum number of probed sentences; all are from the first batch."""
GREEDY = Decoding(beam=1)


class DeadlineExceeded(Exception):
    """Raised when decoding takes so long that the other ranks could time out."""


@dataclass
class Validation:
    """Computes the metrics of the dev set for the current weights.

    Only the main rank decodes the first ``training.dev_bleu`` pairs; the other ranks wait.
    """

    dev: Shards
    ranks: Ranks
    device: torch.device
    training: Training
    vocabulary: TokenizerPair
    source_ends: SourceEnds

    def __post_init__(self) -> None:
        longest = max(int(lengths.max(initial=0)) for lengths in self.dev.lengths.values())
        longest += max(1, number_of_ends(self.source_ends))
        sampler = BatchSampler(self.dev, max(DEV_TOKENS, longest), seed=0, source_ends=self.source_ends)
        self.batches = sampler.epoch(0)

    @torch.no_grad()
    def check(self, objective: Objective) -> dict[str, float]:
        """Return ``dev_perplexity``: exp of the mean -log p of the reference, per piece, without smoothing (§6.2).

        If it is finite, the main rank adds the signs of collapse and ``dev_bleu``.
        """
        objective.eval()
        sums = torch.zeros(len(self.batches), 2, dtype=torch.float64)
        for number in range(self.ranks.rank, len(self.batches), self.ranks.world_size):
            batch = load_padded(self.dev, self.batches[number], self.source_ends)
            with autocast(self.training, self.device):
                _, nll = objective(batch.to(self.device))
            sums[number] = torch.tensor([float(nll), batch.pieces])
        # Added in the order of the batches, so that the perplexity does not depend on the number of ranks.
        nll, pieces = (sum(column) for column in zip(*self.ranks.sum(sums).tolist(), strict=True))
        values = {DEV_PERPLEXITY: to_perplexity(nll / pieces)}
        if self.ranks.is_main and math.isfinite(values[DEV_PERPLEXITY]):
            # Compiled layers support neither the hooks that record attention nor the growing cache of a search.
            with torch.compiler.set_stance("force_eager"), autocast(self.training, self.device):
                batch = load_padded(self.dev, self.batches[0][:PROBE_SENTENCES], self.source_ends).to(self.device)
                values |= probe(objective.transformer, batch.source, batch.target) | self.bleu(objective.transformer)
        objective.train()
        return values

    def bleu(self, model: Transformer) -> dict[str, float]:
        """Return ``dev_bleu``: BLEU (``model.training.dev_bleu``) of greedy translations.

        The references are the decoded target pieces. The result is empty if decoding takes more than half of the time
        that the other ranks wait.
        """
        rows = range(min(self.training.dev_bleu, len(self.dev)))
        if not rows:
            return {}
        deadline = time.monotonic() + self.ranks.timeout_seconds / 2

        def check_deadline(done: int, total: int) -> None:
            if self.ranks.world_size > 1 and done < total and time.monotonic() > deadline:
                raise DeadlineExceeded(f"no dev_bleu: {done} of {total} sentences decoded, lower training.dev_bleu")

        translator = Translator(model, self.vocabulary, self.device)
        sources = [self.dev.pieces("source", row).tolist() for row in rows]
        try:
            hypotheses = translator.search(sources, GREEDY, check_deadline)
        except DeadlineExceeded as error:
            print(error, file=sys.stderr, flush=True)
            return {}
        references = [self.vocabulary.decode_target(self.dev.pieces("target", row).tolist()) for row in rows]
        translations = [translator.text(hypothesis) for hypothesis in hypotheses]
        return {DEV_BLEU: bleu([tokenize(text) for text in translations], [tokenize(text) for text in references])}
