"""Beam search whose hypotheses must contain given token sequences: lexical constraints (Post and Vilar 2018).

Dynamic beam allocation: at each step the beam is divided among banks, by the number of constraint tokens that a
hypothesis has written. So hypotheses with few of them survive beside likelier ones, and one with all is found whatever
it costs. Only a hypothesis that contains every phrase may end.
"""

# The rows are those of one sentence: a step has few hypotheses, and their phrases differ between sentences.

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..config import Decoding
from ..config.keying import require
from .beam_search import (
    Hypothesis,
    IncrementalDecoder,
    SearchConstraints,
    SpecialIds,
    candidates,
    check_prefixes,
    length_penalty,
)

Phrases = tuple[tuple[int, ...], ...]
"""The token sequences that an output must contain; those that overlap are written one after the other."""


@dataclass(frozen=True)
class Progress:
    """What a hypothesis has written of the phrases: numbers of whole ones, and how much of one that it is writing."""

    phrases: Phrases
    met: frozenset[int] = frozenset()
    current: int = -1
    position: int = 0

    @property
    def tokens(self) -> int:
        """The bank: tokens written of whole phrases and of the current one."""
        return sum(len(self.phrases[number]) for number in self.met) + self.position

    @property
    def complete(self) -> bool:
        return len(self.met) == len(self.phrases)

    @property
    def wanted(self) -> list[int]:
        """The next tokens that write more of the phrases."""
        missing = [number for number in range(len(self.phrases)) if number not in self.met]
        firsts = {self.phrases[number][0] for number in missing}
        return sorted(firsts | ({self.phrases[self.current][self.position]} if self.position else set()))

    def after(self, token: int) -> "Progress":
        """The progress with one more token; a phrase that is broken off begins anew."""
        if self.position and self.phrases[self.current][self.position] == token:
            return self._at(self.current, self.position + 1)
        for number, phrase in enumerate(self.phrases):
            if number not in self.met and phrase[0] == token:
                return self._at(number, 1)
        return Progress(self.phrases, self.met)

    def _at(self, number: int, position: int) -> "Progress":
        if position == len(self.phrases[number]):
            return Progress(self.phrases, self.met | {number})
        return Progress(self.phrases, self.met, number, position)


@dataclass(frozen=True)
class Candidate:
    """A continuation of a live hypothesis by one token."""

    row: int
    token: int
    log_p: float
    progress: Progress = field(compare=False)


def constrained_beam_search(
    step: IncrementalDecoder,
    phrases: Phrases,
    constraint: SearchConstraints,
    decoding: Decoding,
    special_ids: SpecialIds,
    device: torch.device,
    n_best: int = 1,
) -> list[Hypothesis]:
    """Return the ``n_best`` best hypotheses of one sentence, of which every finished one contains all phrases.

    If fewer finished by the greatest length, the cut ones with most of the phrases follow, up to the beam. Raises
    ValueError if ``n_best`` exceeds what the beam can finish, for a coverage penalty, and for an empty phrase or one
    with a special token; FloatingPointError for scores that are NaN.
    """
    decoding.check_n_best(n_best)
    require(not decoding.beta, "decoding.beta", decoding.beta, "0 with words that the output must contain")
    check_prefixes([constraint], special_ids)
    excluded = {special_ids.eos, *special_ids.forbidden}
    for phrase in phrases:
        require(bool(phrase) and excluded.isdisjoint(phrase), "phrase", phrase, "tokens that an output can hold")
    live: list[tuple[tuple[int, ...], float, Progress]] = [((), 0.0, Progress(phrases))]
    finished: list[Hypothesis] = []
    count = 0
    pieces_R = torch.tensor([special_ids.bos], device=device)
    for length in range(1, constraint.max_length + 1):
        log_p_RN = step.advance(pieces_R).log_softmax(dim=1)
        forced = constraint.prefix[length - 1] if length <= len(constraint.prefix) else None
        found = _candidates(log_p_RN, live, forced, length >= constraint.min_length, decoding.beam, special_ids)
        complete = [each for each in found if each.progress.complete]
        ends = [each for each in complete[: decoding.beam] if each.token == special_ids.eos]
        for each in ends:
            score = each.log_p / length_penalty(length, decoding.alpha)
            finished.append(Hypothesis(live[each.row][0], each.log_p, score, finished=True))
        count += len(ends)
        finished = sorted(finished, key=lambda hypothesis: -hypothesis.score)[:n_best]
        chosen = allocate([each for each in found if each.token != special_ids.eos], decoding.beam)
        live = [((*live[each.row][0], each.token), each.log_p, each.progress) for each in chosen]
        if length == constraint.max_length or not live or count >= decoding.beam:
            break
        reachable = max(log_p for _, log_p, _ in live) / length_penalty(constraint.max_length, decoding.alpha)
        if len(finished) == n_best and reachable <= finished[-1].score:
            break
        step.reorder(torch.tensor([each.row for each in chosen], device=device))
        pieces_R = torch.tensor([each.token for each in chosen], device=device)
    penalty = length_penalty(length, decoding.alpha)
    missing = max(0, min(n_best, decoding.beam) - len(finished))
    cut = sorted(live, key=lambda each: (-each[2].tokens, -each[1]))[:missing]
    return [*finished, *(Hypothesis(tokens, log_p, log_p / penalty, finished=False) for tokens, log_p, _ in cut)]


def _candidates(
    log_p_RN: Tensor,
    live: Sequence[tuple[tuple[int, ...], float, Progress]],
    forced: int | None,
    may_end: bool,
    beam: int,
    special_ids: SpecialIds,
) -> list[Candidate]:
    """The best continuations of each hypothesis and those that write more of its phrases, the likeliest first."""
    scores_RC, pieces_RC = candidates(log_p_RN, beam, special_ids)
    found = []
    for row, (_, log_p, progress) in enumerate(live):
        best = dict(zip(pieces_RC[row].tolist(), scores_RC[row].tolist(), strict=True))
        tokens = [forced] if forced is not None else sorted({*best, *progress.wanted})
        for token in tokens:
            score = best.get(token, float(log_p_RN[row, token]))
            ends = token == special_ids.eos
            if score > -math.inf and not (ends and (not progress.complete or not may_end)):
                found.append(Candidate(row, token, log_p + score, progress if ends else progress.after(token)))
    return sorted(found, key=lambda each: (-each.log_p, each.row, each.token))


def allocate(found: Sequence[Candidate], beam: int) -> list[Candidate]:
    """Choose ``beam`` candidates: the best of each bank, in equal shares.

    What a bank cannot fill goes to the fullest banks, as does what is left of the division, so that a beam that is
    smaller than the number of banks also gets on.
    """
    banks: dict[int, list[Candidate]] = {}
    for each in found:
        banks.setdefault(each.progress.tokens, []).append(each)
    most = max((sum(map(len, each.progress.phrases)) for each in found), default=0)
    share = beam // (most + 1)
    taken = {bank: min(share, len(members)) for bank, members in banks.items()}
    left = beam - sum(taken.values())
    for bank in sorted(banks, reverse=True):
        more = min(left, len(banks[bank]) - taken[bank])
        taken[bank] += more
        left -= more
    chosen = [each for bank, members in banks.items() for each in members[: taken[bank]]]
    return sorted(chosen, key=lambda each: (-each.log_p, each.row, each.token))
