"""Each preset beside the values of its source: the paths that it sets, what the run then holds, and the source's words.

``(reading)`` marks a value that the source leaves open.
"""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from flows.runs import RUNS
from flows.runs.overrides import NAMED, override
from flows.runs.plain_values import plain
from tasks.evaluation.paper_figures import PEERS

OFFICIAL = {
    "model.norm": ("pre", "applied to the input of the sublayer"),
    "model.init": ("glorot", "Xavier/Glorot initialization with a gain of 1"),
    "model.p_drop_attention": (0.1, "also applied after the Softmax operation in the attention mechanism"),
    "model.p_drop_relu": (0.1, "and the ReLU activation"),
    "training.schedule": ("paper", "min(s^-0.5, s * warmup^-1.5)"),
    "training.factor": (2.0, "the learning rate curve from the paper is doubled in magnitude"),
    "training.warmup": (8_000, "warmed up over 8000 steps"),
    "training.batching": ("buckets", "padded to the length of the longest sequence in the batch"),
}
UNCLEANED = {
    "filters.rules": ([{"rule": "Empty"}], "no pair is removed for what it says"),
    "filters.exclude": ([], "no line of a set is removed"),
    "filters.seed": (1, "(reading)"),
    "filters.max_rejected": (0.2, "(reading)"),
    "filters.normalise.nfc": (False, "text as published"),
    "filters.normalise.control": (False, "text as published"),
    "filters.normalise.white_space": (False, "text as published"),
    "filters.normalise.quotes": (False, "text as published"),
}
PAPERS_SCHEDULE = {
    "training.schedule": ("paper", "(reading) as closely as possible to the original"),
    "training.factor": (1.0, "(reading)"),
    "training.warmup": (4_000, "(reading)"),
}
SOURCES: dict[str, tuple[str, dict[str, tuple[Any, str]]]] = {
    "tensor2tensor": ("wmt14-ende-base", OFFICIAL),
    "tutorial": (
        "wmt14-ende-base",
        OFFICIAL
        | UNCLEANED
        | {
            "sharding.min_pieces": (3, "between 3 and 150 tokens in length"),
            "sharding.max_pieces": (150, "between 3 and 150 tokens in length"),
            "sharding.max_ratio": (2.0, "didn't differ in their lengths by more than a factor of 2"),
            "model.source_ends": ("none", "only German sequences are prepended and appended to"),
            "training.label_smoothing": (0.1, "smoothing coefficient 0.1"),
            "training.checkpoint_every": (1_500, "saved as separate files every 1500 steps"),
            "training.keep": (0, "counted in epochs"),
            "training.keep_epochs": (2, "in the final two epochs only"),
            "averaging.which": ("kept", "these checkpoints should be averaged"),
            "averaging.count": (1, "all that are kept"),
            "decoding.beam": (4, "a beam size of 4"),
            "decoding.alpha": (0.6, "a length normalization coefficient of 0.6"),
        },
    ),
    "workbench": (
        "wmt14-ende-base",
        {
            "filters.normalise.quotes": (True, "special Unicode quotation marks to their regular ASCII counterparts"),
            "vocabulary.scripts": (["Latin"], "Chinese, Japanese, Arabic, and Cyrillic with a unique unknown token"),
            "sharding.max_pieces": (200, "truncated all sequences exceeding 200 tokens"),
            "sharding.too_long": ("cut", "truncated"),
            "model.norm": ("pre", "the layer normalization outside the residual flow"),
            "model.qkv_bias": (True, "q_lin, k_lin and v_lin are nn.Linear with its bias"),
            "model.source_ends": ("bos+eos", "every text sequence (both target and source): START and END"),
            "model.positions": ("learned_sinusoid", "sine-cosine … but keep these parameters trainable"),
            "training.updates": (0, "counted in epochs"),
            "training.epochs": (26, "1+25 epochs"),
            "training.schedule": ("linear", "linearly decayed with each epoch"),
            "training.warmup": (0, "counted in epochs"),
            "training.warmup_epochs": (1, "for the first epoch, linearly increased with each batch"),
            "training.peak": (1e-3, "a peak learning rate of 1e-3"),
            "training.optimizer": ("adamw", "AdamW"),
            "training.beta1": (0.9, "β1=0.9"),
            "training.beta2": (0.98, "β2=0.98"),
            "training.eps": (1e-6, "ϵ=1e-6, as RoBERTa and whisper"),
            "training.weight_decay": (1e-3, "a weight decay of 0.001"),
            "decoding.alpha": (0.0, "without any penalties"),
        },
    ),
    "multi30k-tutorial": (
        "multi30k-enfr",
        UNCLEANED
        | {
            "vocabulary.joint": (False, "both an English and a French vocabulary"),
            "vocabulary.tokens": ("spacy", "spacy_en, spacy_fr"),
            "vocabulary.lowercase": (True, "all capital letters are removed"),
            "vocabulary.min_frequency": (1, "adding in every sentence of the training split"),
            "vocabulary.size": (50_000, "no limit"),
            "sharding.min_pieces": (1, "no limit"),
            "sharding.max_pieces": (58, "60 positions, with SOS and EOS"),
            "sharding.max_ratio": (0.0, "no limit"),
            "model.layers": (6, "stack_size 6"),
            "model.d_model": (512, "hidden_size 512"),
            "model.d_ff": (2_048, "feedforward_size 2048"),
            "model.heads": (8, "num_heads 8"),
            "model.d_k": (64, "key_size 64"),
            "model.d_v": (64, "value_size 64"),
            "model.p_drop": (0.1, "dropout 0.1"),
            "model.norm": ("post", "(reading) no norm between the last layer and the projection"),
            "model.tied": (False, "an nn.Embedding for each side, and an nn.Linear"),
            "model.source_ends": ("bos+eos", "all inputs: SOS prepended, EOS appended"),
            "model.positions": ("learned", "positional_encoding is an nn.Embedding"),
            "model.max_positions": (60, "context_size 60, the number of positional encodings to learn"),
            "model.scale_embeddings": (False, "self.embedding(X) + self.positional_encoding(…)"),
            "model.output_bias": (True, "project is an nn.Linear with its bias"),
            "training.label_smoothing": (0.0, "CrossEntropyLoss(ignore_index=PAD_IDX)"),
            "training.updates": (0, "counted in epochs"),
            "training.epochs": (15, "the results after 15 epochs"),
            "training.checkpoint_every": (1_813, "saved after each epoch: 29,000 pairs in batches of 16"),
            "training.batching": ("buckets", "pad_sequence"),
            "training.batch_sentences": (16, "BATCH_SIZE 16"),
            "training.schedule": ("constant", "no scheduler"),
            "training.warmup": (1, "no scheduler"),
            "training.peak": (1e-4, "Adam(model.parameters(), lr=0.0001)"),
            "training.optimizer": ("adam", "Adam"),
            "training.beta1": (0.9, "torch's default"),
            "training.beta2": (0.999, "torch's default"),
            "training.eps": (1e-8, "torch's default"),
            "averaging.count": (1, "the last checkpoint"),
            "decoding.beam": (7, "generate(…, 7, 60, …)"),
        },
    ),
    "aiayn": (
        "wmt14-ende-base",
        {
            "model.norm": ("pre", "Post-LN to Pre-LN, one major architectural change"),
            "model.init": ("normal", "(reading)"),
            "model.source_ends": ("none", "no need to add any special tokens to the encoder's input"),
            "training.batching": ("packed", "pack variable-length input and target sentences end-to-end"),
            "training.target_ends": ("eos+eos", "BOS CONTENT EOS EOS"),
            **PAPERS_SCHEDULE,
        },
    ),
    "notes": (
        "wmt14-ende-base",
        {
            "vocabulary.nfkc": (True, "normalizers.NFKC()"),
            "model.norm": ("post", "normalisation after residual connection as does my implementation"),
            "model.qkv_bias": (True, "bias=True"),
            "model.source_ends": ("bos+eos", "enc input must also have BOS and EOS tokens"),
            "training.label_smoothing": (0.0, "did not use label smoothing"),
            "training.updates": (0, "counted in epochs"),
            "training.epochs": (24, "24 epochs total"),
            **PAPERS_SCHEDULE,
        },
    ),
}
WORKBENCH = """
Newstest-2013 reference beam 18.83 21.67
Newstest-2013 reference greedy 17.56 20.30
Newstest-2013 own-from-scratch beam 17.85 20.56
Newstest-2013 own-from-scratch greedy 16.26 18.82
Newstest-2014 reference beam 21.19 23.69
Newstest-2014 reference greedy 19.38 21.87
Newstest-2014 own-from-scratch beam 20.13 22.57
Newstest-2014 own-from-scratch greedy 17.56 19.97
"""
"""The table of the source: set, layers, search, NLTK's BLEU, sacreBLEU by torchmetrics."""


def leaves(run: Any, path: str = "") -> dict[str, Any]:
    """The values of a run as plain ones, by the path that ``--set`` takes."""
    found: dict[str, Any] = {}
    for each in fields(run):
        value = getattr(run, each.name)
        inner = f"{path}{each.name}"
        kind = None if each.name != "rules" else type(run).__annotations__["rules"]
        if is_dataclass(value):
            found |= leaves(value, f"{inner}.")
        elif kind:
            found[inner] = [{"rule": type(rule).__name__} for rule in value]
        else:
            found[inner] = plain(value)
    return found


@pytest.mark.parametrize("name", NAMED["preset"])
def test_a_preset_sets_the_values_of_its_source_and_no_others(name: str) -> None:
    run, source = SOURCES[name]
    before = leaves(RUNS[run])
    after = leaves(override(RUNS[run], [f"preset={name}"]))
    assert {path: after[path] for path in source} == {path: value for path, (value, _) in source.items()}
    assert {path for path in after if after[path] != before[path]} <= source.keys()
    assert f"`{name}`" in (Path(__file__).parents[3] / "docs/presets.md").read_text()


def test_the_workbench_s_figures_are_the_sixteen_of_its_table() -> None:
    sets = {"newstest2013": "Newstest-2013", "newstest2014": "Newstest-2014"}
    layers = {"torch's layers": "reference", "own layers": "own-from-scratch"}
    printed = {
        (*line.split()[:3], protocol, figure)
        for line in WORKBENCH.split("\n")[1:-1]
        for protocol, figure in zip(("NLTK", "13a"), line.split()[3:], strict=True)
    }
    stored = {
        (sets[peer.set_name], layers[kind], search, peer.protocol.removesuffix(", mean of sentences"), peer.bleu)
        for peer in PEERS
        if peer.system.startswith("Transformer-Workbench")
        for _, kind, search in [peer.system.split(", ")]
    }
    assert stored == printed
    assert len(printed) == 16
