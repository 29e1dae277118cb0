"""Benchmarks of speed against peers."""
