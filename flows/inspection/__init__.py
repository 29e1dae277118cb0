"""Inspects finished work: traces a pair, compares runs, verifies checksums, collects garbage."""
