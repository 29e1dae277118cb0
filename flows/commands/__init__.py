"""The commands of ``repro``, one file each; ``flows.cli`` registers them."""
