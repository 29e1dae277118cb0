"""What a training asks of its dev set now and then: the perplexity (§6.2), over all ranks, and numbers to watch."""

import math
import sys
import time
from collections.abc import Callable

import torch

from model.batches import Plan, load
from model.bleu import bleu, words
from model.bpe import BOS, EOS, Pieces
from model.config import Decoding
from model.objective import Objective
from model.probes import probe
from model.ranks import Ranks
from model.shards import Shards
from model.transformer import Transformer
from model.translator import Translator, padded

DEV_TOKENS = 8_192
"""Target pieces of dev text computed at once."""
PROBED = 64
"""Most sentences that are looked into; all come from the first batch."""
GREEDY = Decoding(beam=1)


class TooSlow(Exception):
    """The other ranks would give up waiting."""


class Validation:
    """The dev set, ready to be asked about as often as the weights have changed.

    ``sentences`` of its first pairs are decoded for a BLEU to watch, on the leading rank alone: the others wait for it.
    """

    def __init__(
        self,
        dev: Shards,
        ranks: Ranks,
        device: torch.device,
        precision: Callable[[], torch.autocast],
        vocabulary: Pieces,
        sentences: int = 0,
    ) -> None:
        self.dev, self.ranks, self.device, self.precision = dev, ranks, device, precision
        self.vocabulary, self.decoded = vocabulary, range(min(sentences, len(dev)))
        longest = max(int(lengths.max(initial=0)) for lengths in dev.lengths.values()) + 1
        self.batches = Plan(dev, max(DEV_TOKENS, longest), seed=0).epoch(0)

    @torch.no_grad()
    def check(self, objective: Objective) -> dict[str, float]:
        """``dev_perplexity``: exp of the mean -log p of the reference, per piece, without smoothing (§6.2).

        The leading rank adds what ``model.probes`` sees and ``dev_bleu``, unless the perplexity is no number.
        """
        objective.eval()
        sums = torch.zeros(2, dtype=torch.float64)
        for rows in self.batches[self.ranks.rank :: self.ranks.size]:
            batch = load(self.dev, rows)
            with self.precision():
                _, nll = objective(batch.to(self.device))
            sums += torch.tensor([float(nll), batch.pieces])
        nll, pieces = self.ranks.sum(sums).tolist()
        values = {"dev_perplexity": math.exp(min(nll / pieces, 700))}
        if self.ranks.leads and math.isfinite(values["dev_perplexity"]):
            # Compiled layers know nothing of the hooks that look into them, nor of a cache that grows.
            with torch.compiler.set_stance("force_eager"), self.precision():
                values |= self.probed(objective.transformer) | self.bleu(objective.transformer)
        objective.train()
        return values

    def probed(self, model: Transformer) -> dict[str, float]:
        """The numbers of ``model.probes`` over the first batch."""
        rows = self.batches[0][:PROBED]
        sources = [[*self.dev.pieces("source", row).tolist(), EOS] for row in rows]
        targets = [[BOS, *self.dev.pieces("target", row).tolist()] for row in rows]
        return probe(model, padded(sources, self.device), padded(targets, self.device))

    def bleu(self, model: Transformer) -> dict[str, float]:
        """``dev_bleu``: BLEU (``model.bleu``) of greedy translations against the text of the target pieces.

        Ranks wait for each other for a time: past half of it the number is given up.
        """
        if not self.decoded:
            return {}
        begun = time.monotonic()

        def hurry(done: int, total: int) -> None:
            if self.ranks.size > 1 and done < total and time.monotonic() - begun > self.ranks.timeout_seconds / 2:
                raise TooSlow(f"no dev_bleu: only {done} of {total} sentences decoded in time, lower training.dev_bleu")

        translator = Translator(model, self.vocabulary, self.device)
        sources = [self.dev.pieces("source", row).tolist() for row in self.decoded]
        try:
            hypotheses = translator.search(sources, GREEDY, hurry)
        except TooSlow as error:
            print(error, file=sys.stderr, flush=True)
            return {}
        references = [self.vocabulary.decode_target(self.dev.pieces("target", row).tolist()) for row in self.decoded]
        translations = [translator.text(hypothesis) for hypothesis in hypotheses]
        return {"dev_bleu": bleu([words(text) for text in translations], [words(text) for text in references])}
