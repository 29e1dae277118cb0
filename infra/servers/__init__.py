"""Addresses, credentials and settings of Prefect's and MLflow's servers, and a temporary Prefect server."""
