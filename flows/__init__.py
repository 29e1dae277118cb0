"""The story: order, runs as values, the command line."""

__version__ = "0.1.0"
