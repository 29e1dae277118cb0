"""The standing service: Prefect's server, MLflow's and workers as child processes under one supervisor.

In: settings of one root, as ``repro up`` was asked. Out: programs that run until ``repro down``, and their state.
Imports neither the store nor launchers.
"""
