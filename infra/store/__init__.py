"""Artifacts as sealed, immutable folders: local or on S3, with a cache, checkpoint sync and maintenance.

In: a finished folder and its description. Out: an Artifact, found again by stage and key. Knows neither stages nor
what an artifact means; imports ``infra.processes`` and ``infra.errors`` only.
"""
