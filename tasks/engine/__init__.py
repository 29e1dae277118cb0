"""What makes a function a cached stage: keys, planner (hit or miss), runner, progress, Prefect tasks.

In: calls of stages. Out: sealed artifacts in a store, one row for each stage. Knows no stage by name; only
``prefect_runner`` imports Prefect.
"""
