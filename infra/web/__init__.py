"""The web page and the JSON API of ``repro serve``.

In: objects that implement ``served_model.ServedModel``. Out: HTTP responses; the page's files are in ``static``.
Must not depend on models, the registry or vocabularies.
"""
