"""Measurements: speed of the engine against its peers, of training as people run it."""
