"""Vocabulary, shards and batches: from Arrow files to tensors of piece ids (§5.1)."""
