"""Decoding: beam search (§6.1), sentence splitting, and whole texts (``version_translator``)."""
