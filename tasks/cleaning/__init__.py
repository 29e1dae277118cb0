"""Filters of sentence pairs, the evidence for their decisions, and the partitioned work of the stage ``clean``.

Input: frames of source and target lines. Output: kept pairs, and counts of what each filter rejected. Depends on no
stage.
"""
