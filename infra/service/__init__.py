"""The standing service: Prefect's server, MLflow's and workers as child processes under one supervisor.

Input: the settings of one root from ``repro up``. Output: programs that run until ``repro down``, and their state.
Imports neither the store nor launchers.
"""
