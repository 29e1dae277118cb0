"""MLflow: runs, metrics, logged models and the registry, through ``MlflowClient`` with explicit ids."""
