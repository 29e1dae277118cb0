"""The standing service: Prefect's server, MLflow's and workers as child processes under one supervisor."""
