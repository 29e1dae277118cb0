"""Hyperparameter search: ``repro sweep`` runs a run with many settings and compares them by a dev score.

Optuna proposes the settings and ends poor trials early. Each trial is a run of its own, cached and recorded as any
other.
"""
