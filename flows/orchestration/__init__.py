"""All code that uses Prefect: flows, deployments, duplicate runs."""
