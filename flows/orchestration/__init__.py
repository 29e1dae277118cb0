"""Everything Prefect: flows, deployments, duplicate runs."""
