"""Plans and runs a request: one run, its seeds, or rows of the paper."""
