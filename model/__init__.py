"""The Transformer, its data, training and search: all that runs on a bare GPU node. Imports no sibling package."""
