"""The special pieces of every vocabulary, and their ids."""

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
"""The pieces of the ids 0 to 3."""
