"""MLflow: runs, metrics, logged models and the registry, through ``MlflowClient`` with explicit ids.

Input: names, parameters, rows of metrics, model folders. Output: runs and versions. A server that does not answer
delays writes, never work. Imports neither the store nor launchers.
"""
