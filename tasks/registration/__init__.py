"""Model registration: the tags and description of a version, and the aliases that it gets."""
