"""Uses trained models: loads a registered version, translates streams of lines, exports to other formats."""
