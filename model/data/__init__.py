"""Vocabulary, shards and batches: from Arrow files to tensors of piece ids (section 5.1).

Batches are a pure function of the lengths, the budget, the seed and the update. ``bpe`` and ``shards`` do not import
torch; this package imports neither training nor decoding.
"""
