"""Render the HTML pages of this package: self-contained, escaped, from Jinja2 templates that extend ``base.html``."""

from pathlib import Path


def render(template: str, **values: object) -> str:
    """The page. A variable that the template uses and ``values`` lacks is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(values)
