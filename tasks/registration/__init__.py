"""Model registration: what a version says of itself, and which alias it gets."""
