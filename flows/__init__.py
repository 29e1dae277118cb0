"""The story: order, runs as values, the command line."""
