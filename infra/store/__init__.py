"""Artifacts as sealed, immutable folders on a disk or in a bucket.

Input: a finished folder and its description. Output: an Artifact, found by stage and key. Knows neither stages nor the
meaning of an artifact; imports ``infra.processes`` and ``infra.errors`` only.
"""
