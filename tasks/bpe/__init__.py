"""Byte-pair encoding at the scale of a corpus: word counts, merges, and a cache of encoded words."""
