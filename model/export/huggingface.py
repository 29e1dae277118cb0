"""Exports to Hugging Face Transformers: writes a folder that its Auto classes load.

Three of its model families compute exactly the same as a ``Model``: Marian (post-LN, sinusoids), Pegasus (pre-LN,
sinusoids) and Blenderbot (pre-LN, learned positions). No family is post-LN with learned positions or has heads wider
than d_model / heads; narrower heads are padded with zeros, and the queries are scaled.
"""

# The families store all sines before all cosines, not alternating (§3.5). Positions are added to embeddings, and the
# rest of the model works with any fixed order of features: so every weight is permuted to the order of the positions.
#
# Shape suffixes: H heads     W d_model / heads     D d_model

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, normalizers, processors
from torch import Tensor, nn

from ..config import Decoding, Model, SourceEnds
from ..config.keying import require
from ..config.special_pieces import BOS, EOS, PAD, SPECIAL_TOKENS, UNK
from ..data.bpe import SOURCE_FILE, TARGET_FILE, TokenizerPair
from ..data.ends import TOKENS_AROUND
from ..decoding.sentence_splitting import DEFAULT_LANGUAGE
from ..network.attention import Attention
from ..network.transformer import DecoderLayer, EncoderLayer, Transformer
from ..network.weights import load_model
from .attention_weights import padded_projections

FAMILIES = {
    ("post", "sinusoid"): (transformers.MarianConfig, transformers.MarianMTModel),
    ("pre", "sinusoid"): (transformers.PegasusConfig, transformers.PegasusForConditionalGeneration),
    ("pre", "learned"): (transformers.BlenderbotConfig, transformers.BlenderbotForConditionalGeneration),
}
"""Maps ``Model.norm`` and the kind of positions to configuration class and model class."""
TOKEN_IDS = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
LONGEST = 512
"""Default maximum tokens of an output; Transformers has no maximum relative to the source."""
ABOUT = """# {name} for transformers

A model translates one sentence at a time: split lines first, like `repro translate`. This needs only
`pip install transformers torch sentencex`:

    from sentencex import segment
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    folder = "."
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    source = AutoTokenizer.from_pretrained(folder)
    target = AutoTokenizer.from_pretrained({target})
    sentences = [each.strip() for each in segment("{language}", "A dog runs. A man sleeps.")]
    batch = source(sentences, return_tensors="pt", padding=True)
    print(" ".join(target.batch_decode(model.generate(**batch), skip_special_tokens=True)))

The tokenizer normalises text in the same way as the training text. The logits equal those of the trained model; the
weights are float32. `generate` uses the beam with which the model was scored. It divides by length ** penalty, but the
model was scored with {penalty}: if these differ, some hypotheses differ too. The limit
`max_extra` of `search.json` is not part of it. The model has {positions} positions.
"""


def write_folder(
    name: str, weights: Path, vocabulary: Path, decoding: Decoding, folder: Path, language: str = DEFAULT_LANGUAGE
) -> None:
    """Write a trained model, its tokenizers and a ``README.md`` with an example into an existing folder.

    The example splits a line into sentences with the rules of the source's ``language``. Raises JobError for incomplete
    weights or vocabulary, ValueError for a shape that no family supports.
    """
    model = load_model(weights)
    pieces = TokenizerPair.load(vocabulary)
    split = pieces.splitting.by if pieces.splitting else "none"
    require(split == "none", "the splitting of words", split, "none: such a folder splits text by its tokenizer alone")
    theirs = converted(model)
    longest = theirs.config.max_position_embeddings
    theirs.generation_config = generation(decoding, longest)
    transformers.utils.logging.disable_progress_bar()
    theirs.save_pretrained(folder)
    ends = model.config.source_ends
    write_tokenizer(vocabulary / SOURCE_FILE, folder, longest, ends)
    for_both = pieces.joint and ends == "eos"
    if not for_both:
        write_tokenizer(vocabulary / (SOURCE_FILE if pieces.joint else TARGET_FILE), folder / "target", longest)
    target = "folder" if for_both else 'folder + "/target"'
    named = {"name": name, "target": target, "positions": longest, "language": language}
    (folder / "README.md").write_text(ABOUT.format(**named, penalty=decoding.penalty_formula))
    (folder / "search.json").write_text(json.dumps({"decoding": decoding.search()}, indent=1) + "\n")


@torch.no_grad()
def converted(model: Transformer) -> Any:
    """Convert the model to a class of transformers. Raises ValueError naming a field that no class supports."""
    config = model.config
    check(model)
    of_family, family = FAMILIES[config.norm, "learned" if config.learns_positions else "sinusoid"]
    shape = {
        "vocab_size": model.source_size,
        "d_model": config.d_model,
        "max_position_embeddings": config.max_positions,
        "activation_function": "relu",
        "dropout": config.p_drop,
        "attention_dropout": config.p_drop_attention,
        "activation_dropout": config.p_drop_relu,
        "scale_embedding": config.scale_embeddings,
        "tie_word_embeddings": config.tied,
        **TOKEN_IDS,
        "forced_eos_token_id": None,
    }
    for half, layers in (("encoder", config.layers), ("decoder", config.layers_of_decoder)):
        shape |= {f"{half}_layers": layers, f"{half}_attention_heads": config.heads, f"{half}_ffn_dim": config.d_ff}
    if of_family is transformers.MarianConfig:
        shape |= {"decoder_vocab_size": model.target_size, "share_encoder_decoder_embeddings": config.tied}
    theirs = family(of_family(**shape)).eval()
    unset = theirs.load_state_dict(dict(weights_of(model)), strict=False)
    unknown = {name for name in unset.missing_keys if not name.endswith("embed_positions.weight")}
    assert not unset.unexpected_keys, unset.unexpected_keys
    assert unknown <= {"final_logits_bias"}, unknown
    return theirs


def check(model: Transformer) -> None:
    """Raise ValueError for a field that no family supports, with its value and the allowed values."""
    config = model.config
    if config.norm == "post":
        require(
            config.positions == "sinusoid", "model.positions", config.positions, "sinusoid where model.norm is post"
        )
    else:
        allowed = f"as many as the source's, {model.source_size}, where model.norm is pre"
        require(model.target_size == model.source_size, "target vocabulary size", model.target_size, allowed)
    require(config.d_model % config.heads == 0, "model.heads", config.heads, "a divisor of model.d_model")
    for name in ("d_k", "d_v"):
        width = getattr(config, name)
        require(width * config.heads <= config.d_model, f"model.{name}", width, "at most model.d_model / model.heads")


def weights_of(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights by the families' names, with permuted features; shared weights once for each name."""
    config = model.config
    order_D = torch.arange(config.d_model)
    if config.positions == "sinusoid":
        order_D = torch.cat([order_D[0::2], order_D[1::2]])
    else:
        yield "model.encoder.embed_positions.weight", model.source_positions.table
        yield "model.decoder.embed_positions.weight", model.target_positions.table
    if config.tied or config.norm == "pre":
        yield "model.shared.weight", model.input_ND[:, order_D]
    yield "model.encoder.embed_tokens.weight", model.input_ND[:, order_D]
    yield "model.decoder.embed_tokens.weight", model.target_embedding[:, order_D]
    yield "lm_head.weight", model.output_ND[:, order_D]
    if model.output_bias_N is not None:
        yield "final_logits_bias", model.output_bias_N[None]
    halves: tuple[tuple[str, Any, nn.Module], ...] = (
        ("encoder", model.encoder, model.encoder_norm),
        ("decoder", model.decoder, model.decoder_norm),
    )
    for half, layers, norm in halves:
        if isinstance(norm, nn.LayerNorm):
            yield from norm_weights(f"model.{half}.layer_norm", norm, order_D)
        for number, layer in enumerate(layers):
            for name, tensor in layer_weights(layer, config, order_D):
                yield f"model.{half}.layers.{number}.{name}", tensor


def layer_weights(layer: EncoderLayer | DecoderLayer, config: Model, order_D: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield from attention_weights("self_attn", layer.attention, config, order_D)
    yield from norm_weights("self_attn_layer_norm", layer.around_attention.norm, order_D)
    if isinstance(layer, DecoderLayer):
        yield from attention_weights("encoder_attn", layer.cross, config, order_D)
        yield from norm_weights("encoder_attn_layer_norm", layer.around_cross.norm, order_D)
    inner = layer.feed_forward.inner
    outer = layer.feed_forward.outer
    yield from (("fc1.weight", inner.weight[:, order_D]), ("fc1.bias", inner.bias))
    yield from (("fc2.weight", outer.weight[order_D]), ("fc2.bias", outer.bias[order_D]))
    yield from norm_weights("final_layer_norm", layer.around_feed_forward.norm, order_D)


def attention_weights(name: str, ours: Attention, config: Model, order_D: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield W^Q, W^K, W^V and W^O with the family's head width, and the biases, which may be 0."""
    width = config.d_model // config.heads
    weights_HWxD, biases_HW, out_DxHW = padded_projections(ours, config.heads, width)
    # The family divides scores by the square root of its own head width.
    scales = (math.sqrt(width / config.d_k), 1.0, 1.0)
    for part, weight_HWxD, bias_HW, scale in zip("qkv", weights_HWxD, biases_HW, scales, strict=True):
        yield f"{name}.{part}_proj.weight", scale * weight_HWxD[:, order_D]
        yield f"{name}.{part}_proj.bias", scale * bias_HW
    yield f"{name}.out_proj.weight", out_DxHW[order_D]
    yield f"{name}.out_proj.bias", ours.out.bias[order_D]


def norm_weights(name: str, norm: nn.LayerNorm, order_D: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield from ((f"{name}.weight", norm.weight[order_D]), (f"{name}.bias", norm.bias[order_D]))


def generation(decoding: Decoding, positions: int) -> Any:
    """Return the settings of ``generate`` that are closest to ``decoding``; padding and bos are suppressed."""
    penalty = {"length_penalty": decoding.alpha} if decoding.beam > 1 else {}
    return transformers.GenerationConfig(
        num_beams=decoding.beam,
        max_length=min(LONGEST, positions),
        min_new_tokens=decoding.min_length or None,
        early_stopping=False,
        suppress_tokens=[PAD, BOS],
        **TOKEN_IDS,
        **penalty,
    )


def write_tokenizer(file: Path, folder: Path, positions: int, ends: SourceEnds = "eos") -> None:
    """Write a fast tokenizer that strips lines, adds the tokens of ``ends`` and reads markup like ``</s>`` as text."""
    tokenizer = Tokenizer.from_file(str(file))
    ours = [tokenizer.normalizer] if tokenizer.normalizer else []
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), *ours])
    before, after = ([SPECIAL_TOKENS[token] for token in tokens] for tokens in TOKENS_AROUND[ends])
    one = [*before, "$A", *after]
    special = [(SPECIAL_TOKENS[token], token) for token in (BOS, EOS)]
    tokenizer.post_processor = processors.TemplateProcessing(one, special_tokens=special)
    ids = {"pad_token": PAD, "bos_token": BOS, "eos_token": EOS, "unk_token": UNK}
    named = {name: SPECIAL_TOKENS[token] for name, token in ids.items()}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=positions, split_special_tokens=True, **named
    ).save_pretrained(folder)
