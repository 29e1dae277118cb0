"""Addresses, credentials and settings of Prefect's and MLflow's servers, and a temporary Prefect server.

Input: the environment and a root folder. Output: which servers to use, and with which settings. ``infra.service``
starts the standing service; this package does not import it.
"""
