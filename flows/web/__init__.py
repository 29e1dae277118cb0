"""The web page and the JSON API of ``repro serve``.

In: loaded versions (``served_version.ServedVersion``). Out: HTTP responses; the page's files are in ``static``. No
request reaches the registry or the file system.
"""
