"""Typographic quotation marks, which a run may replace by plain ones in training text, input and references."""

DOUBLE = "“”„‟«»"
SINGLE = "‘’‚‛‹›"
"""Includes the typographic apostrophe."""
REPLACEMENTS = {f"[{DOUBLE}]": '"', f"[{SINGLE}]": "'"}
"""Regular expressions of both kinds, and the plain character of each."""
