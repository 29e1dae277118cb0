"""What a training needs beside the network: loss, optimizer, checkpoints, validation, metrics, ranks, hardware.

In: batches and a Transformer. Out: updated weights, checkpoints, rows of metrics. The loop itself is ``model.train``;
``export`` is not imported.
"""
