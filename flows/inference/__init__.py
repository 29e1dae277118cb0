"""Use trained models: load a registered version, translate streams of lines, export to other formats."""
