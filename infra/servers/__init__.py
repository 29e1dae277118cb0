"""Addresses, credentials and settings of Prefect's and MLflow's servers, and a temporary Prefect server.

In: the environment and a root folder. Out: which server to use, and how patiently. Starting the standing service is
``infra.service``, which this does not import.
"""
