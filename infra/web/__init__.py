"""A web page and a JSON API over whatever translates; ``protocol`` says what that must offer.

In: versions of models as objects, found by their names. Out: HTTP responses; the page's files are in ``static``.
Knows no model, registry or vocabulary.
"""
