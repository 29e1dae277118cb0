"""Metrics, comparison of systems, plots, and the paper's published figures beside ours."""
