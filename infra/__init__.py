"""Storage, tracking, processes, servers and launchers. No module here depends on translation."""
