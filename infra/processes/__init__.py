"""Processes of this machine: signals, children, identity, file locks, GPU locks, worker pools, malloc and threads.

Input: process ids, files to lock, functions to run. Output: locks, workers, an orderly end. Imports no other
sub-package of ``infra``.
"""
