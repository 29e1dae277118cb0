"""Artifacts as sealed, immutable folders on a disk or in a bucket.

Input: a finished folder and its description. Output: an Artifact, found by stage and key. ``store`` says what a store
does, ``local`` does it in a folder, ``s3`` in a bucket; nothing outside asks which. Knows neither stages nor the
meaning of an artifact; imports ``infra.errors``, ``infra.guards`` and ``infra.processes`` only.
"""
