"""The embedded demo corpus: a grammar and a lexicon that generate a small parallel text.

In: nothing but a seed in the code. Out: the same bytes on every machine. Imports no other sub-package.
"""
