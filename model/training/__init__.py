"""The parts of a training except the network: loss, optimizer, checkpoints, validation, metrics, ranks, hardware."""
