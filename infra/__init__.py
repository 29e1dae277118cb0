"""The outside world: storage, tracking, processes, servers, launchers. Knows nothing of translation."""
