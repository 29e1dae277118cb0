"""Exports to CTranslate2: writes a folder that ``ctranslate2.Translator`` loads, for every shape of a ``Model``.

CTranslate2 has one width for the queries, keys and values of a head: narrower ones are padded with zeros. The folder
gets a copy of ``model.export.ctranslate2_runtime`` as ``translate.py``, which searches like the paper.
"""

# Shape suffixes: H heads     W the wider of d_k and d_v     D d_model     P positions

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec
from tokenizers import Tokenizer
from torch import Tensor, nn

from ..config import Decoding, Model
from ..config.decoding import Quantization
from ..config.keying import require
from ..config.special_pieces import BOS, EOS, SPECIAL_TOKENS, UNK
from ..data import word_splitting
from ..data.bpe import SOURCE_FILE, TARGET_FILE, TokenizerPair
from ..data.ends import TOKENS_AROUND, number_of_ends
from ..decoding import sentence_splitting
from ..decoding.sentence_splitting import DEFAULT_LANGUAGE
from ..network.attention import Attention
from ..network.transformer import DecoderLayer, EncoderLayer, Positions, Transformer, sinusoid
from ..network.weights import load_model
from . import ctranslate2_runtime
from .attention_weights import padded_projections

POSITIONS = 2_048
"""Minimum rows of an exported table of sines and cosines; in ``model.network`` the table grows on demand."""
ABOUT = """# {name} for CTranslate2

Lines are split into sentences, as in `repro translate`; with `--no-split` each line is one sentence. Weights are
{quantization}. This needs only `pip install ctranslate2 {libraries}`:

    python translate.py < in.txt > out.txt

`--beam 1` is faster and slightly worse. `--workers 4 --threads 2` computes four batches at once, each on two cores.

From Python, in this folder:

    from pathlib import Path
    from translate import Folder
    model = Folder(Path("."))
    model.translate(["A dog runs."], model.search)

To call `ctranslate2.Translator` yourself:

- Split a line into sentences with `Folder.sentences`, split sentences into tokens with `Folder.pieces`, and pass the
  tokens as strings. CTranslate2 adds {added} to a source and bos to a target. `Folder.text` decodes hypotheses.
- `search.json` holds the search settings with which the model was scored. Their length penalty is {penalty}, but
  CTranslate2's is length ** `length_penalty`: `translate.py` requests a beam of hypotheses with their
  log-probabilities and ranks them itself.
- Sources of more than {longest} tokens, without special ones, are too long.
"""


def write_folder(
    name: str,
    weights: Path,
    vocabulary: Path,
    decoding: Decoding,
    folder: Path,
    quantization: Quantization,
    language: str = DEFAULT_LANGUAGE,
) -> None:
    """Write a trained model, its tokenizers, ``translate.py``, ``search.json`` and a ``README.md`` into ``folder``.

    The rules of the source's ``language`` split lines into sentences. Raises JobError for incomplete weights or
    vocabulary.
    """
    model = load_model(weights)
    pieces = TokenizerPair.load(vocabulary)
    splitting = pieces.splitting
    positions = len(table(model.source_positions))
    write_ctranslate2(model, names(pieces.source), names(pieces.target), folder, quantization)
    for file in (SOURCE_FILE, TARGET_FILE)[: 1 if pieces.joint else 2]:
        shutil.copyfile(vocabulary / file, folder / file)
    shutil.copyfile(ctranslate2_runtime.__file__, folder / "translate.py")
    shutil.copyfile(sentence_splitting.__file__, folder / ctranslate2_runtime.SENTENCES)
    if splitting:
        file, record = splitting.record
        (folder / file).write_text(record)
        shutil.copyfile(word_splitting.__file__, folder / ctranslate2_runtime.SPLITTING)
    ends = model.config.source_ends
    longest = positions - number_of_ends(ends)
    search = {"decoding": decoding.search(), "positions": positions, "longest": longest, "source_language": language}
    (folder / "search.json").write_text(json.dumps(search, indent=1) + "\n")
    added = {"eos": "eos", "none": "nothing", "bos+eos": "bos and eos"}[ends]
    about = {"name": name, "quantization": quantization, "added": added, "longest": longest}
    libraries = f"tokenizers sentencex {splitting.library if splitting else ''}".strip()
    (folder / "README.md").write_text(ABOUT.format(**about, penalty=decoding.penalty_formula, libraries=libraries))


def write_ctranslate2(
    model: Transformer,
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    folder: Path,
    quantization: Quantization = "float32",
) -> None:
    """Write the files that ``ctranslate2.Translator`` loads into an existing folder.

    ``int8`` quantizes matrices and embeddings with a scale per row. Raises ValueError if the number of tokens differs
    from the model's or a token occurs twice.
    """
    require(quantization in get_args(Quantization), "quantization", quantization, ", ".join(get_args(Quantization)))
    for name, pieces, size in (
        ("source_pieces", source_pieces, model.source_size),
        ("target_pieces", target_pieces, model.target_size),
    ):
        require(len(set(pieces)) == size, name, len(set(pieces)), f"{size} different ones, as many as the model's")
    spec = specification(model)
    spec.register_source_vocabulary(list(source_pieces))
    spec.register_target_vocabulary(list(target_pieces))
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


@torch.no_grad()
def specification(model: Transformer) -> TransformerSpec:
    """Return the model as CTranslate2's specification, without its vocabulary."""
    config = model.config
    width = max(config.d_k, config.d_v)
    options: dict[str, Any] = {"pre_norm": config.norm == "pre"}
    if config.heads * width != config.d_model:
        options["head_dim"] = width
    spec = TransformerSpec(
        TransformerEncoderSpec(config.layers, config.heads, **options),
        TransformerDecoderSpec(config.layers_of_decoder, config.heads, **options),
    )
    halves: list[tuple[Any, Sequence[EncoderLayer | DecoderLayer], Positions, nn.Module]] = [
        (spec.encoder, model.encoder, model.source_positions, model.encoder_norm),
        (spec.decoder, model.decoder, model.target_positions, model.decoder_norm),
    ]
    for stack, ours, positions, norm in halves:
        stack.scale_embeddings = config.scale_embeddings
        stack.position_encodings.encodings = table(positions)
        if isinstance(norm, nn.LayerNorm):
            set_norm(stack.layer_norm, norm)
        for theirs, layer in zip(stack.layer, ours, strict=True):
            set_attention(theirs.self_attention, layer.attention, layer.around_attention.norm, config)
            if isinstance(layer, DecoderLayer):
                set_attention(theirs.attention, layer.cross, layer.around_cross.norm, config)
            # CTranslate2's default activation is ReLU.
            set_linear(theirs.ffn.linear_0, layer.feed_forward.inner)
            set_linear(theirs.ffn.linear_1, layer.feed_forward.outer)
            set_norm(theirs.ffn.layer_norm, layer.around_feed_forward.norm)
    spec.encoder.embeddings[0].weight = array(model.input_ND)
    spec.decoder.embeddings.weight = array(model.target_embedding)
    spec.decoder.projection.weight = array(model.output_ND)
    if model.output_bias_N is not None:
        spec.decoder.projection.bias = array(model.output_bias_N)
    spec.config.bos_token = spec.config.decoder_start_token = SPECIAL_TOKENS[BOS]
    spec.config.eos_token = SPECIAL_TOKENS[EOS]
    spec.config.unk_token = SPECIAL_TOKENS[UNK]
    before, after = TOKENS_AROUND[config.source_ends]
    spec.config.add_source_bos = bool(before)
    spec.config.add_source_eos = bool(after)
    spec.config.layer_norm_epsilon = model.encoder[0].around_attention.norm.eps
    return spec


def set_attention(theirs: Any, ours: Attention, norm: nn.LayerNorm, config: Model) -> None:
    """Set an attention's weights: W^Q, W^K and W^V joined for self-attention, W^Q separate for cross-attention."""
    width = max(config.d_k, config.d_v)
    weights_HWxD, biases_HW, out_DxHW = padded_projections(ours, config.heads, width)
    joined = [slice(3)] if len(theirs.linear) == 2 else [slice(1), slice(1, 3)]
    for linear, parts in zip(theirs.linear, joined, strict=False):
        linear.weight = array(torch.cat(weights_HWxD[parts]))
        if config.qkv_bias:
            linear.bias = array(torch.cat(biases_HW[parts]))
    theirs.linear[-1].weight = array(out_DxHW)
    theirs.linear[-1].bias = array(ours.out.bias)
    if width != config.d_k:
        # The scale uses the paper's d_k, not the padded width.
        theirs.queries_scale = np.float32(1 / math.sqrt(config.d_k))
    set_norm(theirs.layer_norm, norm)


def set_linear(theirs: Any, ours: nn.Linear) -> None:
    theirs.weight = array(ours.weight)
    theirs.bias = array(ours.bias)


def set_norm(theirs: Any, norm: nn.LayerNorm) -> None:
    theirs.gamma = array(norm.weight)
    theirs.beta = array(norm.bias)


def table(positions: Positions) -> np.ndarray[Any, Any]:
    """Return the position encodings (P, D); CTranslate2 would compute them in another order of features (§3.5)."""
    rows, d_model = positions.table.shape
    return array(positions.table if positions.learned else sinusoid(max(rows, POSITIONS), d_model))


def names(tokenizer: Tokenizer) -> list[str]:
    """Return the tokens of a vocabulary in the order of their ids."""
    ids: dict[str, int] = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return a contiguous copy in float32."""
    return tensor.detach().to("cpu", torch.float32).contiguous().numpy().copy()
