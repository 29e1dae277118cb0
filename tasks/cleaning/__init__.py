"""Filters of sentence pairs, the evidence for their decisions, and the partitioned work of the stage ``clean``."""
