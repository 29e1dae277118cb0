"""Metrics, comparison of systems, plots, and the paper's published figures beside ours.

In: hypotheses, references and facts of finished stages. Out: scores, figures and HTML pages. Knows no model and
starts no work.
"""
