"""Use trained models: load a registered version, translate streams of lines, export to other formats.

In: a model version and text. Out: translations, or a folder for another program. Loads torch lazily, and imports
neither Prefect nor the runner's engine.
"""
