"""A model from its configuration."""

from model.config import Model
from model.reference import Reference
from model.transformer import Transformer


def build(config: Model, source_size: int, target_size: int) -> Transformer:
    """An initialised model. Raises ValueError where tied embeddings meet vocabularies of two sizes."""
    kind = Reference if config.attention == "torch" else Transformer
    return kind(config, source_size, target_size)
