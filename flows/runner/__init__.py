"""A request planned and run: one run, its seeds, or rows of the paper."""
