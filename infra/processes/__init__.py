"""Processes of this machine: signals, children, identity, file locks, GPU locks, worker pools, malloc and threads."""
