"""Where ``repro site`` writes the page of a version, for the site itself and for links to it."""

from infra.store.file_names import file_name


def version_page(name: str, number: int) -> str:
    """The path of the page below the site's folder."""
    return f"versions/{file_name(name)}/{number}.html"
