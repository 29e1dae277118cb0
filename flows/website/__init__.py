"""The site that ``repro site`` writes: registry, versions and runs as static HTML, readable without a server."""
