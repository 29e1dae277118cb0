"""The pipeline's stages, the engine that caches them, and what they need. Imports ``infra`` and, of ``model``, no
torch."""
