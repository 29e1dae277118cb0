"""What a training needs beside the network: loss, optimizer, checkpoints, validation, metrics, ranks, hardware."""
