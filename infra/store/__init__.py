"""Artifacts: sealed, immutable folders on a disk or in a bucket, found by stage and key through one interface."""
