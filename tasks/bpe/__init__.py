"""Byte-pair encoding on the scale of a corpus: word counts, merges, and a cache of encoded words.

In: cleaned text. Out: merge rules, and pieces for each word. How a vocabulary is loaded and applied is
``model.data.bpe``. Nothing here makes artifacts or imports a stage.
"""
