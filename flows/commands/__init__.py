"""The words of ``repro``, a file each, which ``flows.cli`` puts together: results to stdout, all else to stderr."""
