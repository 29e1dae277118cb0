"""Byte-pair encoding at the scale of a corpus: word counts, merges, and a cache of encoded words.

Input: cleaned text. Output: merge rules, and the pieces of each word. ``model.data.bpe`` loads and applies a
vocabulary. Depends on no stage.
"""
