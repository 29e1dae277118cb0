"""Follow one sentence pair through the artifacts of a run, from the raw line to its score.

In: finished artifacts and a pair id. Out: a ``PairTrace`` with one value per step. Makes no artifact and prints
nothing; ``flows.views`` prints.
"""
