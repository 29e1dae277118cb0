"""The commands of ``repro``, one file each; ``flows.cli`` registers them.

In: arguments and options. Out: results on stdout, messages on stderr. A command parses and prints; other sub-packages,
imported when it runs, do the work. Must not import Prefect or torch at its top.
"""
