"""Maps optional libraries to the extras that install them. The check for a library does not import it."""

from importlib.util import find_spec

from infra.errors import BadConfiguration

EXTRAS = {
    "ctranslate2": "ctranslate2",
    "transformers": "huggingface",
    "distributed": "dask",
    "spacy": "spacy",
    "psycopg2": "postgresql",
    "kubernetes": "kubernetes",
}


def check_installed(library: str, needed_by: str) -> None:
    """Raise BadConfiguration if an optional library that ``needed_by`` needs is missing; takes no time."""
    if library in EXTRAS and find_spec(library) is None:
        install = f"pip install -e '.[{EXTRAS[library]}]'"
        raise BadConfiguration(f"{library} is not installed here: {install} ({needed_by} needs it)")
