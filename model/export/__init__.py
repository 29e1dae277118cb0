"""Trained models in the formats of other programs: a ``Transformer`` and its vocabulary in, a folder out.

Each module knows one outside library, which is an extra; nothing else in this package needs any of them.
"""
