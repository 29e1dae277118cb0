"""Filters of sentence pairs, the evidence for their decisions, and the partitioned work of the stage ``clean``.

In: frames of source and target lines. Out: kept pairs, and counts of what each filter removed. Knows neither stages
nor artifacts.
"""
