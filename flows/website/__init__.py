"""Writes the site of ``repro site``: registry, versions and runs as static HTML, readable without a server."""
