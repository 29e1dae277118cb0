"""The commands of ``repro``, one file each; ``flows.cli`` puts them together.

In: arguments and options. Out: results on stdout, everything else on stderr, an exit code. A command parses and prints;
the work is done by the other sub-packages, which it imports when it runs.
"""
