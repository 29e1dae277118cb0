"""A web page and a JSON API over whatever translates: ``contract`` says what that must be able to do.

Nothing here knows a model, a registry or a vocabulary; versions come in as objects and are found by their names alone.
"""
