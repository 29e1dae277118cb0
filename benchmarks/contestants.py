"""The training contestants: this engine, torch.nn.Transformer and MarianMTModel.

A contestant chooses the pairs of its updates and does one update at a time: batch, forward, backward, optimizer.
"""

import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from model.config import Model, Training
from model.config.special_pieces import BOS, EOS, PAD
from model.data.batches import BatchSampler, Cursor
from model.data.shards import Array, Shards
from model.job import Job, JobSettings
from model.network.transformer import sinusoid
from model.train import trainer_for
from model.training.distributed import Ranks
from model.training.optimizer import learning_rate


@dataclass(frozen=True)
class Setting:
    """The settings that all contestants share."""

    folder: Path
    """Holds ``shards``, ``dev`` and ``vocabulary``."""
    model: Model
    training: Training
    vocabulary: int
    device: str = "cpu"
    threads: int = 1
    compile: bool = False
    whole: bool = False
    """This engine compiles whole updates, not layers."""
    attention: Literal["torch", "own"] = "torch"
    """This engine's attention over packed sentences."""

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device, torch.bfloat16, enabled=self.training.precision == "bf16")


@dataclass(frozen=True)
class Step:
    """The counts of one update."""

    pairs: int
    target_pieces: int
    cells: int
    """Computed positions of both sides, with padding."""
    padding: int


class Contestant(ABC):
    """An engine whose training speed is measured."""

    name: str
    parameters: int

    @abstractmethod
    def __init__(self, setting: Setting) -> None:
        """Build the engine."""

    @abstractmethod
    def batches(self) -> Iterator[Array]:
        """Yield the rows of each update, without end."""

    @abstractmethod
    def step(self, rows: Array) -> Step:
        """Do one update over these rows, without waiting for the device."""


class Own(Contestant):
    """This engine: its trainer, its batches and its train step, without checkpoints and progress."""

    name = "own"

    def __init__(self, setting: Setting) -> None:
        inputs = {name: setting.folder / name for name in ("shards", "dev", "vocabulary")}
        config = {"model": asdict(setting.model), "training": asdict(setting.training)}
        compiled = "update" if setting.whole else "always" if setting.compile else "never"
        site = JobSettings(
            device=setting.device,  # type: ignore[arg-type]
            threads=setting.threads,
            compile=compiled,  # type: ignore[arg-type]
            packed_attention=setting.attention,
        )
        out = setting.folder / "own"
        out.mkdir(exist_ok=True)
        self.trainer = trainer_for(Job(config, inputs, out, site), Ranks())
        self.parameters = sum(p.numel() for p in self.trainer.step.model.parameters())

    def batches(self) -> Iterator[Array]:
        return (rows for rows, _ in self.trainer.reader.sampler.batches_from(Cursor()))

    def step(self, rows: Array) -> Step:
        losses = self.trainer.train_step(self.trainer.reader.read(rows, Cursor()))
        return Step(len(rows), losses.pieces, losses.num_positions, losses.padding)


class Peer(Contestant):
    """A model that makes logits of padded batches, with torch's own loss and Adam; subclasses bring the model."""

    model: nn.Module

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.device = torch.device(setting.device)
        self.updates = 0
        self.shards = Shards(setting.folder / "shards")
        torch.manual_seed(setting.training.seed)
        self.model = self.build().to(self.device).train()
        if setting.compile:
            for layer in self.layers():
                layer.compile(dynamic=True)
        training = setting.training
        self.loss = nn.CrossEntropyLoss(label_smoothing=training.label_smoothing, ignore_index=PAD)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), betas=(training.beta1, training.beta2), eps=training.eps
        )
        self.parameters = sum(p.numel() for p in self.model.parameters())

    @abstractmethod
    def build(self) -> nn.Module:
        """Build the model."""

    @abstractmethod
    def layers(self) -> list[nn.Module]:
        """Return the layers, which are compiled one by one as in this engine."""

    @abstractmethod
    def logits(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Return the logits (B, T, N)."""

    def batches(self) -> Iterator[Array]:
        plan = BatchSampler(self.shards, self.setting.training.batch_tokens, self.setting.training.seed)
        return (rows for rows, _ in plan.batches_from(Cursor()))

    def step(self, rows: Array) -> Step:
        source_BS, target_BT, labels_BT = padded(self.shards, rows)
        pieces = int((labels_BT != PAD).sum())
        cells = source_BS.numel() + target_BT.numel()
        done = Step(len(rows), pieces, cells, cells - int((source_BS != PAD).sum()) - pieces)
        self.updates += 1
        if self.device.type == "cuda":
            tensors = [x.pin_memory().to(self.device, non_blocking=True) for x in (source_BS, target_BT, labels_BT)]
            source_BS, target_BT, labels_BT = tensors
        self.optimizer.zero_grad()
        with self.setting.autocast():
            logits_BTN = self.logits(source_BS, target_BT)
            loss = self.loss(logits_BTN.flatten(0, 1), labels_BT.flatten())
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.setting.training, self.setting.model.d_model, self.updates)
        self.optimizer.step()
        return done


class TorchPeer(Peer):
    """torch.nn.Transformer in its usual form: embedding, sinusoids, a projection tied to the embedding."""

    name = "torch"
    model: "_Wrapped"

    def build(self) -> nn.Module:
        return _Wrapped(self.setting.model, self.setting.vocabulary)

    def layers(self) -> list[nn.Module]:
        core = self.model.core
        return [*core.encoder.layers, *core.decoder.layers]

    def logits(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        out: Tensor = self.model(source_BS, target_BT)
        return out


class _Wrapped(nn.Module):
    positions: Tensor

    def __init__(self, config: Model, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.register_buffer("positions", sinusoid(config.max_positions, config.d_model), persistent=False)
        self.drop = nn.Dropout(config.p_drop)
        self.core = nn.Transformer(
            d_model=config.d_model,
            nhead=config.heads,
            num_encoder_layers=config.layers,
            num_decoder_layers=config.layers,
            dim_feedforward=config.d_ff,
            dropout=config.p_drop,
            batch_first=True,
            norm_first=config.norm == "pre",
        )
        for module in self.core.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = config.p_drop_attention
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = config.p_drop_relu
        self.projection = nn.Linear(config.d_model, vocabulary, bias=False)
        self.projection.weight = self.embedding.weight

    def embed(self, pieces_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(pieces_BT) * math.sqrt(self.embedding.embedding_dim)
        out: Tensor = self.drop(x_BTD + self.positions[: pieces_BT.shape[1]])
        return out

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        length = target_BT.shape[1]
        hidden_BTD = self.core(
            self.embed(source_BS),
            self.embed(target_BT),
            tgt_mask=torch.ones(length, length, dtype=torch.bool, device=target_BT.device).triu(1),
            src_key_padding_mask=source_BS == PAD,
            tgt_key_padding_mask=target_BT == PAD,
            memory_key_padding_mask=source_BS == PAD,
            tgt_is_causal=True,
        )
        out: Tensor = self.projection(hidden_BTD)
        return out


class MarianPeer(Peer):
    """MarianMTModel of Hugging Face Transformers, with torch's label-smoothed cross-entropy."""

    name = "marian"

    def build(self) -> nn.Module:
        return marian(self.setting.model, self.setting.vocabulary, use_cache=False)

    def layers(self) -> list[nn.Module]:
        core: Any = self.model.get_submodule("model")
        return [*core.encoder.layers, *core.decoder.layers]

    def logits(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        # No mask for the targets: padding lies at their end, where the causal mask hides it; Marian's usual input.
        answer = self.model(
            input_ids=source_BS, attention_mask=(source_BS != PAD).long(), decoder_input_ids=target_BT, use_cache=False
        )
        out: Tensor = answer.logits
        return out


PEERS: dict[str, type[Peer]] = {"torch": TorchPeer, "marian": MarianPeer}


def missing(peer: str) -> str:
    """Return why a peer cannot run, or an empty string."""
    if peer == "marian" and importlib.util.find_spec("transformers") is None:
        return "marian is left out: the package transformers is not installed"
    return ""


def padded(shards: Shards, rows: Array) -> tuple[Tensor, Tensor, Tensor]:
    """Pad sources … eos (B, S), decoder inputs bos … (B, T) and labels … eos (B, T)."""
    sources, targets = ([shards.pieces(side, row) for row in rows] for side in ("source", "target"))
    source_BS = np.full((len(rows), 1 + max(map(len, sources))), PAD, np.int64)
    target_BT = np.full((len(rows), 1 + max(map(len, targets))), PAD, np.int64)
    labels_BT = np.full_like(target_BT, PAD)
    target_BT[:, 0] = BOS
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        source_BS[i, : len(source)] = source
        source_BS[i, len(source)] = EOS
        target_BT[i, 1 : 1 + len(target)] = target
        labels_BT[i, : len(target)] = target
        labels_BT[i, len(target)] = EOS
    return torch.from_numpy(source_BS), torch.from_numpy(target_BT), torch.from_numpy(labels_BT)


def marian(config: Model, vocabulary: int, use_cache: bool) -> nn.Module:
    """Build a MarianMTModel of this shape with random weights."""
    import transformers

    shape = transformers.MarianConfig(
        vocab_size=vocabulary,
        d_model=config.d_model,
        encoder_layers=config.layers,
        decoder_layers=config.layers,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        dropout=config.p_drop,
        attention_dropout=config.p_drop_attention,
        activation_dropout=config.p_drop_relu,
        activation_function="relu",
        max_position_embeddings=config.max_positions,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        use_cache=use_cache,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=BOS,
    )
    model: nn.Module = transformers.MarianMTModel(shape)
    return model
