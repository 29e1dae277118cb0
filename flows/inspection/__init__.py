"""Inspect finished work: trace a pair, compare runs, verify checksums, collect garbage."""
