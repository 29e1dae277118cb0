"""The special pieces of every vocabulary, and their ids."""

PAD = 0
BOS = 1
EOS = 2
UNK = 3
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
"""The pieces with the ids 0 to 3."""
