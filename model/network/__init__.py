"""The Transformer (§3, §5.4): layers, attention, a reference built from torch's layers, weights as files."""
