"""Decoding: beam search (§6.1), sentence splitting, and translation of whole texts (``version_translator``)."""
