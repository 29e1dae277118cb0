"""A finished training, and the longer one that goes on from it."""
