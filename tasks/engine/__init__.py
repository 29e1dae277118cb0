"""Cached stages: the ``@stage`` decorator, keys, planner (hit or miss), runner, progress, Prefect tasks.

Input: calls of stages. Output: sealed artifacts in a store, and one row for each stage. No module here names a stage,
and only ``prefect_runner`` imports Prefect.
"""
