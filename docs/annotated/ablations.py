"""Measure on the demo's corpus what each part of the paper's recipe is worth, and how post-LN collapses.

    python docs/annotated/ablations.py                 all trainings that data/trainings.json lacks, then the numbers
    python docs/annotated/ablations.py --seeds 1 2 3   with these seeds (the default)
    python docs/annotated/ablations.py --collapse      a deep encoder with post-LN beside one with pre-LN

The root (``REPRO_ROOT``, by default the nearest ``.repro``) must hold a finished ``repro run demo``: its shards are the
training text, its version's vocabulary is used, its dev set is translated. The teaching model is trained as in
transformer.py, one part of the recipe left out at a time, with the same weights at the start and the same batches for
the same seed. Every training is added to docs/annotated/data/trainings.json as it ends, so an interrupted command goes
on. ``python docs/annotated/figures.py ablations collapse`` draws the result.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import sacrebleu
from figures import DATA, read, write
from transformer import (
    BOS,
    EOS,
    PAD,
    LayerNorm,
    MultiHeadAttention,
    Shape,
    Transformer,
    average_checkpoints,
    batch,
    label_smoothed_loss,
    learning_rate,
    positional_encoding,
)

from flows import api
from model.data.batches import BatchSampler, Cursor
from model.data.bpe import TokenizerPair
from model.data.shards import Shards
from model.training.probes import cosine

UPDATES = 250
WARMUP = 80
BATCH_TOKENS = 800
DEV_PAIRS = 250
"""Pairs of the dev set that are translated, from its first on."""
AVERAGED = 5
APART = 10
"""Checkpoints that are averaged, and the updates between two of them."""
T_QUANTILES = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
"""The 97.5 % quantile of Student's distribution by degrees of freedom."""
SHAPE = Shape(N=2, d_model=64, d_ff=128, h=4, d_k=16, d_v=16, P_drop=0.1, norm="pre")
ABOUT = f"{UPDATES} updates of {BATCH_TOKENS} pieces; {SHAPE.norm}-LN, N {SHAPE.N}, d_model {SHAPE.d_model}"
WHOLE = "all"
"""The name of the recipe that leaves nothing out."""
Numbers = dict[str, Any]


class FastNorm(LayerNorm):
    """The same norm in one call of torch, which trains the whole model a third faster."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, self.gain.shape, self.gain, self.bias)


class UnscaledShape(Shape):
    """Attention whose scores are not divided by sqrt(d_k)."""

    def attention(self) -> MultiHeadAttention:
        made = super().attention()
        # Queries times sqrt(d_k), which the division takes back.
        made.W_Q.register_forward_hook(lambda _, __, q: q * math.sqrt(self.d_k))
        return made


class UnscaledEmbeddings(Transformer):
    """Embeddings that are not multiplied by sqrt(d_model)."""

    def embed(self, pieces: Tensor) -> Tensor:
        return self.dropout(self.E[pieces] + positional_encoding(pieces.shape[1], self.shape.d_model))


def without_warmup(step: int, d_model: int, warmup: int) -> float:
    """The paper's rate, from its greatest value on: what would be the warm-up has the rate of its end."""
    return learning_rate(max(step, warmup), d_model, warmup)


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: by default with every part of the paper's recipe."""

    name: str = WHOLE
    shape: Shape = SHAPE
    model: type[Transformer] = Transformer
    rate: Callable[[int, int, int], float] = learning_rate
    epsilon: float = 0.1


RECIPES = [
    Recipe(),
    Recipe("warm-up", rate=without_warmup),
    Recipe("scaling by √d_k", shape=UnscaledShape(**vars(SHAPE))),
    Recipe("scaling of embeddings", model=UnscaledEmbeddings),
    Recipe("dropout", shape=replace(SHAPE, P_drop=0.0)),
    Recipe("smoothing", epsilon=0.0),
]


@dataclass
class Text:
    """The demo's training pairs and dev set, as its finished run left them."""

    vocabulary: TokenizerPair
    shards: Shards
    sources: Tensor
    references: list[str]
    targets: Tensor = field(init=False)

    def __post_init__(self) -> None:
        ids = self.vocabulary.encode_target(self.references)
        self.targets = batch([[BOS, *each, EOS] for each in ids])

    @classmethod
    def of_demo(cls) -> "Text":
        vocabulary = api.load("demo/1").translator.vocabulary
        dev = api.sentences("demo/1").filter(set="dev").head(DEV_PAIRS)
        sources = vocabulary.encode_source(vocabulary.read(dev["source"].to_list()))
        shards = Shards(api.artifact("demo/shard/train").path())
        return cls(vocabulary, shards, batch([[*each, EOS] for each in sources]), dev["reference"].to_list())

    def batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Sources … eos and targets bos … eos, without an end."""
        sampler = BatchSampler(self.shards, BATCH_TOKENS, seed)
        for rows, _ in sampler.batches_from(Cursor()):
            loaded = sampler.load(rows, 1, 0)
            assert loaded.label_indices is not None
            labels = torch.full_like(loaded.target, PAD)
            labels.view(-1)[loaded.label_indices] = loaded.labels
            yield loaded.source, torch.cat([loaded.target[:, :1], labels], dim=1)


def trained(recipe: Recipe, text: Text, seed: int, updates: int) -> tuple[Transformer, list[dict[str, Tensor]]]:
    """A model after its training, with its last checkpoints."""
    torch.manual_seed(seed)
    model = recipe.model(text.vocabulary.target_size, recipe.shape)
    for module in model.modules():
        if isinstance(module, LayerNorm):
            module.__class__ = FastNorm
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    checkpoints = []
    for step, (source, target) in enumerate(islice(text.batches(seed), updates), start=1):
        adam.param_groups[0]["lr"] = recipe.rate(step, model.shape.d_model, WARMUP)
        loss = label_smoothed_loss(model(source, target[:, :-1]), target[:, 1:], recipe.epsilon)
        adam.zero_grad()
        loss.backward()
        adam.step()
        before_end = updates - step
        if before_end % APART == 0 and before_end < AVERAGED * APART:
            checkpoints.append({name: value.clone() for name, value in model.state_dict().items()})
    return model.eval(), checkpoints


@torch.no_grad()
def bleu(model: Transformer, text: Text) -> float:
    """BLEU of greedy translations of the dev set."""
    sources = text.sources
    memory = model.encode(sources)
    written = torch.full((len(sources), 1), BOS)
    ended = torch.zeros(len(sources), dtype=torch.bool)
    while not ended.all() and written.shape[1] < sources.shape[1] + 20:
        logits = model.decode(written, memory, sources)[:, -1]
        logits[:, [PAD, BOS]] = -math.inf
        written = torch.cat([written, logits.argmax(dim=-1, keepdim=True)], dim=1)
        ended |= written[:, -1] == EOS
    rows = (row[: row.index(EOS)] if EOS in row else row for row in written[:, 1:].tolist())
    hypotheses = [text.vocabulary.decode_target(row) for row in rows]
    return float(sacrebleu.corpus_bleu(hypotheses, [text.references]).score)


@torch.no_grad()
def perplexity(model: Transformer, text: Text) -> float:
    """Perplexity of the dev set, per piece."""
    logits = model(text.sources, text.targets[:, :-1])
    return math.exp(float(label_smoothed_loss(logits, text.targets[:, 1:], 0.0)))


@torch.no_grad()
def cosines(model: Transformer, sources: Tensor) -> list[float]:
    """Mean cosine between two positions of a sentence: of the embeddings, and after each encoder layer."""
    kept: list[Tensor] = []
    hooks = [layer.register_forward_hook(lambda _, __, out: kept.append(out)) for layer in model.encoder]
    model.encode(sources)
    for hook in hooks:
        hook.remove()
    return [round(float(cosine(x, sources != PAD)), 4) for x in (model.embed(sources), *kept)]


def measured(recipe: Recipe, text: Text, seed: int) -> Numbers:
    """One training: BLEU and perplexity of the averaged checkpoints, and BLEU of the last one for the whole recipe."""
    began = time.monotonic()
    model, checkpoints = trained(recipe, text, seed, UPDATES)
    of_last = {"bleu_last": round(bleu(model, text), 2)} if recipe.name == WHOLE else {}
    model.load_state_dict(average_checkpoints(checkpoints))
    scores = {"bleu": round(bleu(model, text), 2), "perplexity": round(perplexity(model, text), 3), **of_last}
    return {"recipe": recipe.name, "seed": seed, **scores, "seconds": round(time.monotonic() - began)}


def summary(rows: list[Numbers], seeds: list[int]) -> Numbers:
    """The numbers of the figure: what each part changes, seed by seed, in BLEU and in nats per piece of the dev set.

    Nats are the logarithm of the perplexity. Of the last checkpoint alone the BLEU was measured, and no perplexity.
    """
    found = {(row["recipe"], row["seed"]): row for row in rows}
    seeds = [seed for seed in seeds if all((recipe.name, seed) in found for recipe in RECIPES)]

    def values(name: str, score: str) -> list[float]:
        return [found[name, seed][score] for seed in seeds]

    def nats(name: str) -> list[float]:
        return [round(math.log(value), 3) for value in values(name, "perplexity")]

    base = values(WHOLE, "bleu")
    names = [recipe.name for recipe in RECIPES[1:]]
    bleus = {name: values(name, "bleu") for name in names} | {"averaging": values(WHOLE, "bleu_last")}
    return {
        "about": ABOUT,
        "seeds": seeds,
        "base": {"bleu": base, "nats": nats(WHOLE)},
        "bleu": [{"name": name, "values": each, **interval(each, base)} for name, each in bleus.items()],
        "nats": [{"name": name, "values": nats(name), **interval(nats(name), nats(WHOLE))} for name in names],
    }


def interval(values: list[float], base: list[float]) -> Numbers:
    """Differences of pairs, their mean, and its 95 % interval by Student's distribution."""
    difference = [round(value - before, 3) for value, before in zip(values, base, strict=True)]
    mean = statistics.fmean(difference)
    error = statistics.stdev(difference) / math.sqrt(len(difference)) * T_QUANTILES[len(difference) - 1]
    return {
        "difference": difference,
        "mean": round(mean, 3),
        "low": round(mean - error, 3),
        "high": round(mean + error, 3),
    }


def collapse(text: Text, updates: int = 150, layers: int = 6, sentences: int = 100, seed: int = 1) -> Numbers:
    """Cosine by layer of a deep encoder, post-LN and pre-LN, before and after the same training."""
    curves = []
    sources = text.sources[:sentences]
    for norm in ("post", "pre"):
        for count in (0, updates):
            model, _ = trained(Recipe(shape=replace(SHAPE, N=layers, norm=norm)), text, seed, count)
            found = {"norm": norm, "trained": count > 0, "cosine": cosines(model.eval(), sources)}
            curves.append(found | {"perplexity": round(perplexity(model, text), 2)})
            print(json.dumps(curves[-1]), flush=True)
    peak = round(learning_rate(WARMUP, SHAPE.d_model, WARMUP), 5)
    settings = {"layers": layers, "updates": updates, "warmup": WARMUP, "peak": peak, "seed": seed}
    return settings | {"sentences": sentences, "curves": curves}


def main() -> None:
    """Read the command line, train what is missing, and write the numbers of both figures."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="default: 1 2 3")
    flags.add_argument("--collapse", action="store_true", help="post-LN beside pre-LN, in place of the ablations")
    chosen = flags.parse_args()
    if len(chosen.seeds) > 1 + max(T_QUANTILES):
        flags.error(f"--seeds has {len(chosen.seeds)} seeds, allowed is up to {1 + max(T_QUANTILES)}")
    text = Text.of_demo()
    torch.set_num_threads(1)  # after the model is loaded, which sets it too: so small a training is fastest so
    if chosen.collapse:
        write("collapse", collapse(text))
        return
    kept = read("trainings") if (DATA / "trainings.json").exists() else {}
    rows = kept["trainings"] if kept.get("about") == ABOUT else []  # other settings begin from nothing
    done = {(row["recipe"], row["seed"]) for row in rows}
    for seed in chosen.seeds:
        for recipe in RECIPES:
            if (recipe.name, seed) in done:
                continue
            rows.append(measured(recipe, text, seed))
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
            write("trainings", {"about": ABOUT, "trainings": rows})
    if len(chosen.seeds) > 1:  # an interval needs two
        write("ablations", summary(rows, chosen.seeds))


if __name__ == "__main__":
    main()
