"""Metrics, comparison of systems, plots, and the paper's published figures beside ours.

In: hypotheses, references and facts of finished stages. Out: scores, figures and HTML pages. Loads no model and starts
no stage.
"""
