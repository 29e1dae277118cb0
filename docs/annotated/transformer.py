"""The Transformer of "Attention Is All You Need" in one file, beside docs/annotated/index.md.

Names are the paper's. A comment at the end of a line is the shape of what the line computes:

    B sentences     n source positions     m target positions     h heads     vocabulary: its entries

Where either side may stand, n is the number of positions. Only torch is needed.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

PAD = 0
BOS = 1
EOS = 2


# Data: pieces of words (§5.1)


def merge(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """Join the pair wherever it stands: h e l l o with (l, l) becomes h e ll o."""
    joined: list[str] = []
    for piece in pieces:
        if joined and joined[-1] == pair[0] and piece == pair[1]:
            joined[-1] = pair[0] + pair[1]
        else:
            joined.append(piece)
    return joined


def learn_bpe(words: dict[str, int], merges: int) -> list[tuple[str, str]]:
    """Learn from words and their counts: again and again the most frequent pair becomes one piece."""
    split = {word: list(word) for word in words}
    known = sorted({letter for word in words for letter in word})
    learnt: list[tuple[str, str]] = []
    while len(learnt) < merges:
        counts: Counter[tuple[str, str]] = Counter()
        for word, pieces in split.items():
            for pair in pairwise(pieces):
                counts[pair] += words[word]
        if not counts:
            break
        number = {piece: position for position, piece in enumerate(known)}
        # Of equally frequent pairs the one whose pieces have been known for longer.
        best = min(counts, key=lambda pair: (-counts[pair], number[pair[0]], number[pair[1]]))
        learnt.append(best)
        if best[0] + best[1] not in number:
            known.append(best[0] + best[1])
        split = {word: merge(pieces, best) for word, pieces in split.items()}
    return learnt


def apply_bpe(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """Split a word into letters; apply the merge that was learnt first, until none fits."""
    rank = {pair: number for number, pair in enumerate(merges)}
    pieces = list(word)
    while fitting := [pair for pair in pairwise(pieces) if pair in rank]:
        pieces = merge(pieces, min(fitting, key=lambda pair: rank[pair]))
    return pieces


def batch(sentences: list[list[int]]) -> Tensor:
    """Sentences as rows of one tensor; the shorter ones end in padding."""
    longest = max(len(pieces) for pieces in sentences)
    rows = [pieces + [PAD] * (longest - len(pieces)) for pieces in sentences]
    return torch.tensor(rows)  # (B, n)


# Network (§3)


def positional_encoding(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) the cosine of it (§3.5)."""
    pos = torch.arange(length)[:, None]  # (length, 1)
    two_i = torch.arange(0, d_model, 2)  # (d_model / 2)
    angle = pos / 10_000 ** (two_i / d_model)  # (length, d_model / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # (length, d_model)


def padding_mask(pieces: Tensor) -> Tensor:
    """Which keys are words: padding is hidden from every query."""
    return (pieces != PAD)[:, None, None, :]  # (B, 1, 1, n): for all heads and queries


def causal_mask(length: int) -> Tensor:
    """Which keys are not in the future: query t sees keys 0 to t."""
    return torch.ones(length, length, dtype=torch.bool).tril()  # (m, m)


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T / sqrt(d_k)) V, and the weights (§3.2.1); the mask is true for visible keys."""
    d_k = K.shape[-1]
    scores = Q @ K.transpose(-2, -1) / math.sqrt(d_k)  # (B, h, m, n)
    scores = scores.masked_fill(~mask, -math.inf)  # (B, h, m, n)
    weights = scores.softmax(dim=-1)  # (B, h, m, n), each row sums to 1
    return weights @ V, weights  # (B, h, m, d_v) and (B, h, m, n)


class MultiHeadAttention(nn.Module):
    """Concat(head_1, …, head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (§3.2.2)."""

    weights: Tensor

    def __init__(self, d_model: int, h: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.h = h
        self.W_Q = nn.Linear(d_model, h * d_k, bias=False)  # W_1^Q … W_h^Q side by side
        self.W_K = nn.Linear(d_model, h * d_k, bias=False)
        self.W_V = nn.Linear(d_model, h * d_v, bias=False)
        self.W_O = nn.Linear(h * d_v, d_model)

    def split(self, x: Tensor) -> Tensor:
        """The heads, which lie side by side, one behind the other."""
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)  # (B, n, h d) to (B, h, n, d)

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
        """Q is (B, m, d_model), K and V are (B, n, d_model)."""
        q = self.split(self.W_Q(Q))  # (B, h, m, d_k)
        k = self.split(self.W_K(K))  # (B, h, n, d_k)
        v = self.split(self.W_V(V))  # (B, h, n, d_v)
        heads, self.weights = attention(q, k, v, mask)  # (B, h, m, d_v), (B, h, m, n)
        concat = heads.transpose(1, 2).flatten(2)  # (B, m, h * d_v)
        return self.W_O(concat)  # (B, m, d_model)


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2, at each position alone (§3.3)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.W_2(self.W_1(x).relu())  # (B, n, d_ff) within, (B, n, d_model) without


class LayerNorm(nn.Module):
    """Each position alone to mean 0 and variance 1 over d_model, times a gain, plus a bias."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=-1, keepdim=True)  # (B, n, 1): not over positions
        variance = x.var(dim=-1, unbiased=False, keepdim=True)  # (B, n, 1)
        x = (x - mean) / (variance + 1e-5).sqrt()  # (B, n, d_model)
        return x * self.gain + self.bias  # (B, n, d_model)


@dataclass(frozen=True)
class Shape:
    """A row of Table 3, by default base. ``norm`` is post, as in the paper, or pre."""

    N: int = 6
    d_model: int = 512
    d_ff: int = 2048
    h: int = 8
    d_k: int = 64
    d_v: int = 64
    P_drop: float = 0.1
    norm: str = "post"

    def attention(self) -> MultiHeadAttention:
        return MultiHeadAttention(self.d_model, self.h, self.d_k, self.d_v)


class Residual(nn.Module):
    """post: LayerNorm(x + Dropout(f(x))) (§3.1, §5.4). pre: x + Dropout(f(LayerNorm(x)))."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = LayerNorm(shape.d_model)
        self.dropout = nn.Dropout(shape.P_drop)
        self.pre = shape.norm == "pre"

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return x + self.dropout(f(self.norm(x)))  # (B, n, d_model)
        return self.norm(x + self.dropout(f(x)))  # (B, n, d_model)


class EncoderLayer(nn.Module):
    """Source positions look at each other, then each is transformed alone (§3.1)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attention = shape.attention()
        self.feed_forward = FeedForward(shape.d_model, shape.d_ff)
        self.around_self_attention = Residual(shape)
        self.around_feed_forward = Residual(shape)

    def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
        x = self.around_self_attention(x, lambda x: self.self_attention(x, x, x, source_mask))  # (B, n, d_model)
        return self.around_feed_forward(x, self.feed_forward)  # (B, n, d_model)


class DecoderLayer(nn.Module):
    """The target looks at itself, then at the source, then each is transformed alone (§3.1)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attention = shape.attention()
        self.cross_attention = shape.attention()
        self.feed_forward = FeedForward(shape.d_model, shape.d_ff)
        self.around_self_attention = Residual(shape)
        self.around_cross_attention = Residual(shape)
        self.around_feed_forward = Residual(shape)

    def forward(self, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor) -> Tensor:
        x = self.around_self_attention(x, lambda x: self.self_attention(x, x, x, target_mask))  # (B, m, d_model)
        x = self.around_cross_attention(x, lambda x: self.cross_attention(x, memory, memory, source_mask))  # the same
        return self.around_feed_forward(x, self.feed_forward)  # (B, m, d_model)


class Transformer(nn.Module):
    """Figure 1. One matrix E embeds source and target and makes the logits (§3.4)."""

    def __init__(self, vocabulary: int, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.encoder = nn.ModuleList(EncoderLayer(shape) for _ in range(shape.N))
        self.decoder = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.N))
        last = LayerNorm if shape.norm == "pre" else nn.Identity
        self.encoder_norm = last(shape.d_model)
        self.decoder_norm = last(shape.d_model)
        for matrix in [each for each in self.modules() if isinstance(each, nn.Linear)]:
            nn.init.xavier_uniform_(matrix.weight)  # as the official code starts; the paper says nothing
            if matrix.bias is not None:
                nn.init.zeros_(matrix.bias)
        E = torch.randn(vocabulary, shape.d_model) / math.sqrt(shape.d_model)
        self.E = nn.Parameter(E)  # (vocabulary, d_model)
        self.dropout = nn.Dropout(shape.P_drop)

    def embed(self, pieces: Tensor) -> Tensor:
        """Rows of E times sqrt(d_model) (§3.4), plus positions (§3.5), with dropout (§5.4)."""
        x = self.E[pieces] * math.sqrt(self.shape.d_model)  # (B, n, d_model)
        x = x + positional_encoding(pieces.shape[1], self.shape.d_model)  # (B, n, d_model)
        return self.dropout(x)  # (B, n, d_model)

    def encode(self, source: Tensor) -> Tensor:
        """What the decoder reads of the source, once for all steps: the memory."""
        x = self.embed(source)  # (B, n, d_model)
        for layer in self.encoder:
            x = layer(x, padding_mask(source))  # (B, n, d_model)
        return self.encoder_norm(x)  # (B, n, d_model)

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """The logits of the piece after each piece of the target."""
        x = self.embed(target)  # (B, m, d_model)
        target_mask = padding_mask(target) & causal_mask(target.shape[1])  # (B, 1, m, m)
        for layer in self.decoder:
            x = layer(x, memory, target_mask, padding_mask(source))  # (B, m, d_model)
        return self.decoder_norm(x) @ self.E.T  # (B, m, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decode(target, self.encode(source), source)  # (B, m, vocabulary)


# Training (§5)


def label_smoothed_loss(logits: Tensor, labels: Tensor, epsilon: float = 0.1) -> Tensor:
    """Cross-entropy with 1 - epsilon on the label, epsilon on all entries alike; per piece (§5.4)."""
    log_p = logits.log_softmax(dim=-1)  # (B, m, vocabulary)
    label = log_p.gather(-1, labels[..., None]).squeeze(-1)  # (B, m)
    loss = -(1 - epsilon) * label - epsilon * log_p.mean(dim=-1)  # (B, m)
    return loss[labels != PAD].mean()  # (): padding is no word and counts nothing


def learning_rate(step: int, d_model: int = 512, warmup: int = 4000) -> float:
    """d_model^-0.5 min(step^-0.5, step warmup^-1.5) (§5.3): a line up, then 1 / sqrt(step)."""
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def train(model: Transformer, pairs: Iterable[tuple[Tensor, Tensor]], warmup: int = 4000) -> Iterator[float]:
    """One update for each batch of sources (… eos) and targets (bos … eos); yields its loss."""
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step, (source, target) in enumerate(pairs, start=1):
        adam.param_groups[0]["lr"] = learning_rate(step, model.shape.d_model, warmup)
        logits = model(source, target[:, :-1])  # (B, m, vocabulary): it reads bos y1 … yn
        loss = label_smoothed_loss(logits, target[:, 1:])  # (): and is to say y1 … yn eos
        adam.zero_grad()
        loss.backward()
        adam.step()
        yield loss.item()


def average_checkpoints(checkpoints: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of every weight over several moments of one training (§6.1)."""
    count = len(checkpoints)
    return {name: sum(each[name] for each in checkpoints) / count for name in checkpoints[0]}


# Decoding (§6.1)


@torch.no_grad()
def greedy_search(model: Transformer, source: Tensor, extra: int = 50) -> list[int]:
    """Write the likeliest piece, read it, write the next, until eos. The source is (1, n)."""
    memory = model.encode(source)  # (1, n, d_model)
    written = [BOS]
    while written[-1] != EOS and len(written) < source.shape[1] + extra:
        logits = model.decode(torch.tensor([written]), memory, source)[0, -1]  # (vocabulary)
        logits[[PAD, BOS]] = -math.inf
        written.append(int(logits.argmax()))
    return written[1:]


def length_penalty(length: int, alpha: float) -> float:
    """((5 + |Y|) / 6)^alpha, which divides log P(Y | X); |Y| counts eos."""
    return ((5 + length) / 6) ** alpha


@torch.no_grad()
def beam_search(
    model: Transformer, source: Tensor, beam: int = 4, alpha: float = 0.6, extra: int = 50
) -> tuple[float, list[int]]:
    """The best translation: its score, log P(Y | X) / length_penalty, and its pieces (… eos)."""
    memory = model.encode(source)  # (1, n, d_model)
    size = len(model.E)
    longest = source.shape[1] - 1 + extra
    live = [(0.0, [BOS])]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1, longest + 1):
        k = len(live)
        rows = torch.tensor([y for _, y in live])  # (k, length)
        sources = source.expand(k, -1)  # (k, n)
        logits = model.decode(rows, memory.expand(k, -1, -1), sources)[:, -1]  # (k, vocabulary)
        log_p = logits.log_softmax(dim=-1).double()  # (k, vocabulary)
        log_p[:, [PAD, BOS]] = -math.inf
        log_p += torch.tensor([[log] for log, _ in live], dtype=torch.double)  # (k, vocabulary): of all pieces so far
        # Each live one can end in one way only, so at least `beam` of these 2 beam go on.
        best = log_p.flatten().topk(2 * beam)  # (2 beam)
        places = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        found = [(log, [*live[at // size][1], at % size]) for log, at in places]
        ended += [(log / length_penalty(length, alpha), y[1:]) for log, y in found[:beam] if y[-1] == EOS]
        live = [each for each in found if each[1][-1] != EOS][:beam]
        # A sum of logarithms only falls: this is the most that a live one can still reach.
        reachable = live[0][0] / length_penalty(longest, alpha)
        if len(ended) >= beam or (ended and reachable <= max(ended)[0]):
            break
    cut = [(log / length_penalty(length, alpha), y[1:]) for log, y in live]
    return max(ended or cut, key=lambda each: each[0])


# Evaluation (§6.1)


def ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each run of n words occurs."""
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def bleu(hypotheses: list[list[str]], references: list[list[str]]) -> float:
    """100 BP (p_1 p_2 p_3 p_4)^(1/4): p_n is the share of n-grams that the references have."""
    written = sum(len(words) for words in hypotheses)
    wanted = sum(len(words) for words in references)
    score = 100 * min(1.0, math.exp(1 - wanted / written))  # BP, the brevity penalty
    for n in range(1, 5):
        have = [ngrams(words, n) for words in hypotheses]
        want = [ngrams(words, n) for words in references]
        matched = sum((a & b).total() for a, b in zip(have, want, strict=True))
        score *= (matched / sum(a.total() for a in have)) ** (1 / 4)
    return score
