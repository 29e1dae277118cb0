"""The service of `repro up`: Prefect's and MLflow's servers and workers as child processes of one supervisor."""
