"""Everything Prefect: flows, deployments, dispatch to work pools, duplicate runs, single stages."""
