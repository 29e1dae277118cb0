"""Artifacts as sealed, immutable folders on a disk or in a bucket, found by stage and key; none asks which it is."""
