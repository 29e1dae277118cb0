"""The Transformer, its data, training and search; runs where only torch, numpy, pyarrow, tokenizers and safetensors are."""
