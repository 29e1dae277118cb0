"""``repro export``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.inference.export import Target
from flows.views.terminal import say
from infra.site import configured_site, open_store
from model.config.decoding import Quantization


def export(
    model: Annotated[str, Parameter(help="NAME@alias, NAME/version or NAME")],
    *,
    to: Annotated[Target, Parameter(help="format to write")],
    quantization: Annotated[
        Quantization,
        Parameter(help="type of CTranslate2's matrices; int8 needs a quarter of the space and is faster on CPUs"),
    ] = "float32",
    out: Annotated[
        Path | None, Parameter(help="folder to write, which must not exist", show_default="exports/NAME-VERSION-FORMAT")
    ] = None,
) -> None:
    """Export a registered version with its vocabulary and search settings to CTranslate2 or Hugging Face.

    For example:

    repro export demo@candidate --to ctranslate2 --quantization int8

    repro export multi30k-ende --to huggingface --out my-model
    """
    from flows.inference.export import export
    from flows.inspection.model_cards import version_card
    from flows.runner.find_run import find_version
    from tasks.registration.lineage import version_lineage
    from tasks.registration.model_card import as_markdown

    site = configured_site()
    version = find_version(model, site)
    suffix = "" if quantization == "float32" else f"-{quantization}"
    folder = out or Path("exports") / f"{version.name}-{version.version}-{to}{suffix}"
    store = open_store(site)
    lineage = version_lineage(store.find, version.tags)
    card = (lambda first: as_markdown(version_card(version, lineage, store), first)) if to == "huggingface" else str
    export(version, site, to, quantization, folder, card)
    say(f"{version.label} is exported to {folder}; {folder / 'README.md'} shows how to use it")
    print(folder)
