"""The web page and the JSON API of ``repro serve``."""
