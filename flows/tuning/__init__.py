"""Searches hyperparameters: ``repro sweep`` runs a run with many settings and compares them by a dev score."""
