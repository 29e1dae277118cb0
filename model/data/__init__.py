"""Vocabulary, shards and batches: from Arrow files to tensors of piece ids (section 5.1).

In: a vocabulary folder and shard files. Out: batches, a pure function of lengths, budget, seed and update. ``bpe``
and ``shards`` import no torch; nothing here knows training or decoding.
"""
