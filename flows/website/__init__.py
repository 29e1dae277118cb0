"""The site that ``repro site`` writes: registry, versions and runs as static HTML, readable without a server.

In: MLflow's registry, manifests and the records of runs. Out: files that load nothing from other hosts and work from
``file://``. Runs no stage, and imports neither Prefect nor the terminal.
"""
