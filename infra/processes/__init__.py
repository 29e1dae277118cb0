"""Processes of this machine: signals, children, identity, file locks, GPU locks, worker pools, malloc.

In: process ids, files to lock, functions to run. Out: locks, workers, a clean end. Imports no other sub-package of
``infra``.
"""
