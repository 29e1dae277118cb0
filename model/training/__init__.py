"""What a training needs beside the network: loss, optimizer, checkpoints, validation, metrics, ranks, hardware.

In: batches and a Transformer. Out: updated weights, checkpoints, rows of metrics. ``setup`` assembles a ``Trainer``,
``trainer`` is the loop, ``step`` one update. Must not import ``export``.
"""
