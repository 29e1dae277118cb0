"""The Transformer (sections 3 and 5.4): layers, attention, a reference from torch's own layers, weights as files.

In: piece ids as tensors. Out: logits, attention weights, ``model.safetensors``. Knows neither data files, training
nor search: it imports ``config`` and ``errors`` only.
"""
