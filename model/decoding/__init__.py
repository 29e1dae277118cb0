"""Decoding: beam search (§6.1), sampling, sentence splitting, and whole texts (``version_translator``)."""
