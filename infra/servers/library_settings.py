"""Environment variables that Prefect and MLflow read at import: telemetry off, longer retries, durable leases."""

PERSISTENT_LEASES = {"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"}
"""What a server that may be started again is to have: with leases in memory alone, the flow runs that hold one (each of
a deployment with a concurrency limit) are cancelled when they come to renew it."""

NO_TELEMETRY = {
    "DO_NOT_TRACK": "true",  # the word: MLflow does not take 1
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
"""For everything that this project starts."""
CLIENT_RETRIES = {
    # With growing pauses, 254 s in all: longer than a server takes to be started again. The default is 62 s.
    "PREFECT_CLIENT_MAX_RETRIES": "7",
    # What has lost its process is noticed by its silence: with Prefect's own 180 s, much later.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "60",
}
"""What every process that runs flows is to have in its environment, workers' too."""
