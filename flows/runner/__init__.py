"""A request planned and run: one run, its seeds, or rows of the paper.

In: a request (run, site, scope, overrides). Out: what became of each stage, recorded under the root.
Knows nothing of Prefect, of the terminal or of the command line.
"""
