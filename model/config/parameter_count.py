"""The parameter count of a Transformer in closed form, without torch."""

from . import Model


def parameters(model: Model, source_size: int, target_size: int) -> int:
    """Number of parameters for these vocabulary sizes; if ``model.tied``, both sides share one vocabulary."""
    attention = model.heads * model.d_model * (2 * model.d_k + 2 * model.d_v) + model.d_model
    attention += model.heads * (2 * model.d_k + model.d_v) * model.qkv_bias
    feed_forward = 2 * model.d_model * model.d_ff + model.d_ff + model.d_model
    norm = 2 * model.d_model
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    matrices = target_size if model.tied else source_size + 2 * target_size
    tables = 2 * model.max_positions if model.learns_positions else 0
    last = 2 * norm if model.norm == "pre" else 0
    return model.layers * (encoder + decoder) + (matrices + tables) * model.d_model + last
