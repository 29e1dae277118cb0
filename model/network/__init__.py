"""The Transformer (sections 3 and 5.4): layers, attention, a reference from torch's own layers, weights as files.

The model maps tensors of piece ids to logits and attention weights. This package imports ``config`` and ``errors``
only; it does not depend on data files, training or search.
"""
