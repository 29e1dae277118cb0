"""Decoding: beam search (§6.1), sampling, sentence splitting, and whole texts (``version_translator``).

In: a folder of weights, a vocabulary and text. Out: hypotheses with scores. Must not depend on training or export.
"""
