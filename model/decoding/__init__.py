"""Decoding: beam search (§6.1), sampling and sentence splitting.

In: a folder of weights, a vocabulary and text. Out: hypotheses with scores. Must not depend on training or export.
"""
