"""Computes the numbers of the figures from a registered version; ``python docs/annotated/figures.py --from demo/1``."""

import math
from typing import Any

import torch
from load import from_version
from torch import Tensor
from transformer import (
    BOS,
    EOS,
    Transformer,
    batch,
    causal_mask,
    label_smoothed_loss,
    learning_rate,
    padding_mask,
    positional_encoding,
)

from flows import api
from model.data.bpe import TokenizerPair

SOURCE = "She must buy the green school trains."
TARGET = "Sie muss die grünen Schulzüge kaufen."
"""A pair of the demo's test set whose verb stands last in German."""
SHORTER = ("The dog sleeps.", "Der Hund schläft.")
"""A pair that is padded to the length of another."""
LAYER = 0
HEAD = 0
"""The encoder's layer and head whose queries, keys and values are shown, counted from 0."""
OTHERS = 5
"""Pieces beside the label whose probabilities are shown."""
EPSILON = 0.1
Numbers = dict[str, Any]


@torch.no_grad()
def numbers_from(version: str) -> dict[str, Numbers]:
    """The numbers of every figure that needs no training, by the name of the figure."""
    model, vocabulary = from_version(version)
    source = vocabulary.encode_source([SOURCE])[0] + [EOS]
    target = [BOS, *vocabulary.encode_target([TARGET])[0], EOS]
    logits = model(torch.tensor([source]), torch.tensor([target[:-1]]))[0]
    read = pieces_of(vocabulary, source)
    wrote = pieces_of(vocabulary, target)
    maps = {"queries": wrote[1:], "keys": wrote[:-1], "sentence": TARGET}
    return {
        "positions": position_numbers(model.shape.d_model),
        "masks": {"masks": mask_numbers(vocabulary, source, target)},
        "qkv": {"sentence": SOURCE, "pieces": read, **head_numbers(model, source)},
        "attention-encoder": {
            "name": "Self-attention of the encoder",
            "remark": "a row for each query, a column for each key",
            **maps,
            "queries": read,
            "keys": read,
            "sentence": SOURCE,
            "weights": [rounded(layer.self_attention.weights[0]) for layer in model.encoder],
        },
        "attention-decoder": {
            "name": "Masked self-attention of the decoder",
            "remark": "rows: the piece to be written; columns: those read",
            **maps,
            "weights": [rounded(layer.self_attention.weights[0]) for layer in model.decoder],
        },
        "attention-cross": {
            "name": "Cross-attention",
            "remark": "rows: the piece to be written; columns: the source",
            **maps,
            "keys": read,
            "weights": [rounded(layer.cross_attention.weights[0]) for layer in model.decoder],
        },
        "smoothing": {"source": SOURCE, **smoothing_numbers(vocabulary, logits, target)},
        "schedule": {"curves": [curve(512, 4000), curve(512, 8000), curve(256, 4000)]},
        "beam": {"source": SOURCE, **beam_numbers(version)},
    }


def rounded(values: Tensor, digits: int = 4) -> Any:
    """A tensor as nested lists."""
    return torch.round(values.double(), decimals=digits).tolist()


def pieces_of(vocabulary: TokenizerPair, ids: list[int]) -> list[str]:
    """The pieces of some ids, of either side: their vocabulary is joint."""
    return vocabulary.target_pieces(ids)


def position_numbers(d_model: int, shown: int = 40) -> Numbers:
    """PE of the first positions, and the dot product of every two."""
    encoding = positional_encoding(shown, d_model)
    return {"encoding": rounded(encoding, 2), "products": rounded(encoding @ encoding.T, 2)}


def mask_numbers(vocabulary: TokenizerPair, longer_source: list[int], longer_target: list[int]) -> list[Numbers]:
    """The three masks of a short pair beside a longer one."""
    source = batch([vocabulary.encode_source([SHORTER[0]])[0] + [EOS], longer_source])
    target = batch([[BOS, *vocabulary.encode_target([SHORTER[1]])[0]], longer_target[:-1]])
    of_source = padding_mask(source)[0, 0]
    of_target = (padding_mask(target) & causal_mask(target.shape[1]))[0, 0]
    read = pieces_of(vocabulary, source[0].tolist())
    wrote = pieces_of(vocabulary, target[0].tolist())
    return [
        _mask("Encoder", "every query sees every key but padding", of_source, read, read),
        _mask("Decoder", "and of the target no key to its right", of_target, wrote, wrote),
        _mask("Cross-attention", "target pieces see the source but padding", of_source, wrote, read),
    ]


def _mask(name: str, remark: str, visible: Tensor, queries: list[str], keys: list[str]) -> Numbers:
    whole = visible.expand(len(queries), len(keys)).int().tolist()
    return {"name": name, "remark": remark, "queries": queries, "keys": keys, "visible": whole}


def head_numbers(model: Transformer, source: list[int]) -> Numbers:
    """Q, K, V, scores and weights of one head, as ``attention`` computes them."""
    kept: dict[str, Tensor] = {}
    attention = model.encoder[LAYER].self_attention
    hooks = [
        getattr(attention, f"W_{name}").register_forward_hook(
            lambda _, __, out, name=name: kept.update({name: attention.split(out)[0, HEAD]})
        )
        for name in "QKV"
    ]
    model.encode(torch.tensor([source]))
    for hook in hooks:
        hook.remove()
    scores = kept["Q"] @ kept["K"].T / math.sqrt(model.shape.d_k)
    numbers = {name: rounded(values, 3) for name, values in kept.items()}
    return numbers | {"scores": rounded(scores, 3), "weights": rounded(attention.weights[0, HEAD])}


def smoothing_numbers(vocabulary: TokenizerPair, logits: Tensor, target: list[int]) -> Numbers:
    """At the position that the model is least sure of: both targets and its distribution, over a few pieces."""
    p = logits.softmax(dim=-1)
    labels = torch.tensor(target[1:])
    at = int(p[range(len(labels)), labels].argmin())
    label = target[at + 1]
    others = [piece for piece in p[at].argsort(descending=True).tolist() if piece != label][:OTHERS]
    shown = [label, *others]
    size = p.shape[-1]
    hard = [1.0] + [0.0] * len(others)
    smoothed = [(1 - EPSILON) * each + EPSILON / size for each in hard]
    return {
        "written": vocabulary.decode_target(target[1 : at + 1]),
        "pieces": [*pieces_of(vocabulary, shown), f"{size - len(shown):,} others"],
        "hard": [*hard, 0.0],
        "smoothed": [round(each, 7) for each in smoothed] + [round(EPSILON * (size - len(shown)) / size, 7)],
        "model": [*rounded(p[at, shown], 7), round(1 - float(p[at, shown].sum()), 7)],
        "vocabulary": size,
        "epsilon": EPSILON,
        "loss": round(float(label_smoothed_loss(logits[at : at + 1], labels[at : at + 1], EPSILON)), 4),
    }


def curve(d_model: int, warmup: int, last: int = 20_000, step: int = 100) -> Numbers:
    """The learning rate at every hundredth step."""
    steps = [1, *range(step, last + 1, step)]
    points = [[each, float(f"{learning_rate(each, d_model, warmup):.6g}")] for each in steps]
    return {"d_model": d_model, "warmup": warmup, "points": points}


def beam_numbers(version: str) -> Numbers:
    """The beam after each step of a search; ``parent`` is the place among the live prefixes of the step before."""
    served = api.load(version)
    vocabulary = served.translator.vocabulary
    found, steps = served.translator.search_steps(vocabulary.encode_source([SOURCE])[0], served.decoding)
    answer = found[0].pieces
    tree = []
    for step in steps:
        nodes = []
        for entry in step:
            each = entry.hypothesis
            ids = [*each.pieces, EOS] if each.finished else each.pieces
            nodes.append(
                {
                    "piece": pieces_of(vocabulary, [ids[-1]])[0],
                    "parent": entry.parent,
                    "log_p": round(each.log_probability, 4),
                    "ended": each.finished,
                    "score": round(each.score, 4) if each.finished else None,
                    "best": ids == [*answer, EOS] if each.finished else each.pieces == answer[: len(each.pieces)],
                }
            )
        tree.append(nodes)
    return {
        "beam": served.decoding.beam,
        "alpha": served.decoding.alpha,
        "answer": vocabulary.decode_target(answer),
        "steps": tree,
    }
