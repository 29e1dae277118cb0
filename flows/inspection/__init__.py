"""Inspect finished work: trace a pair, compare runs, verify checksums, collect garbage.

In: a store and the records of runs. Out: values that ``views`` and ``commands`` print. Runs no stage, and imports
neither Prefect nor the terminal.
"""
