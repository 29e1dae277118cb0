"""The Transformer, its data, training and search: all code that runs on a GPU node. Imports no sibling package."""
