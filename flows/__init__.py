"""Defines what runs and how: the DAG, runs as values, the commands, Prefect flows. May import all packages."""

__version__ = "0.4.0.dev0"
