"""Vocabulary, shards and batches: from Arrow files to tensors of piece ids (section 5.1)."""
