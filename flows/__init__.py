"""What is run and how: the DAG, runs as values, the command line, Prefect flows. May import the other packages."""

__version__ = "0.3.0"
