"""Guards for text from outside: names that become paths, addresses that are stored, text that is shown."""
