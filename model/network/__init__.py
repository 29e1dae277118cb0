"""The Transformer (sections 3 and 5.4): layers, attention, a reference from torch's own layers, weights as files."""
