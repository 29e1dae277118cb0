"""The pipeline's stages, the engine that caches them, and helpers. Imports ``infra`` and ``model`` without torch."""
