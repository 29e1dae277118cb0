"""The outside world: storage, tracking, launching; knows nothing of translation."""
