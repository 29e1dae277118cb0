"""Continues a finished training with a longer one."""
