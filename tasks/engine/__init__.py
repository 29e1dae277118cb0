"""Cached stages: the ``@stage`` decorator, keys, planner (hit or miss), runner, progress, Prefect tasks."""
