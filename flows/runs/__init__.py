"""Runs as frozen dataclasses: what is computed from what, with which settings.

Define your own as ``replace(PAPER_BASE, …)``. ``run`` holds the class, ``built_in_runs`` the values; the other modules
hold overrides, cleaning profiles, rows of the paper and initial weights. Loads neither torch nor Prefect nor MLflow.
"""

from flows.runs.built_in_runs import DEMO, MULTI30K_ENDE, MULTI30K_ENFR, PAPER_BASE, RUNS, VARIATIONS, WMT14_SAMPLE_ENDE
from flows.runs.languages import standard_filters
from flows.runs.run import Run

__all__ = [
    "DEMO",
    "MULTI30K_ENDE",
    "MULTI30K_ENFR",
    "PAPER_BASE",
    "RUNS",
    "VARIATIONS",
    "WMT14_SAMPLE_ENDE",
    "Run",
    "standard_filters",
]
