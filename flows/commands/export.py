"""``repro export``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.inference.export import Target
from flows.runs.completion import OverridesOption
from flows.views.terminal import say
from infra.servers.environment import configure_libraries
from infra.site import Site
from infra.store.file_names import file_name
from model.config.engines import Quantization


def export(
    run: Annotated[str, Parameter(help="a run, or a version such as demo@champion or demo/3")],
    *,
    to: Annotated[Target, Parameter(help="format to write")],
    quantization: Annotated[
        Quantization,
        Parameter(help="type of CTranslate2's matrices; int8 is a quarter of the size and faster on CPUs"),
    ] = "float32",
    out: Annotated[
        Path | None, Parameter(help="folder to write, which must not exist", show_default="exports/RUN-FORMAT")
    ] = None,
    overrides: OverridesOption = (),
) -> None:
    """Export a trained model with its vocabulary and search settings to CTranslate2 or Hugging Face.

    For example:

    repro export demo@candidate --to ctranslate2 --quantization int8

    repro export multi30k-ende --to huggingface --out my-model
    """
    from flows.inference.export import export, find_trained_model
    from flows.inspection.model_cards import find_card
    from tasks.registration.model_card import as_markdown

    site = Site.named()
    configure_libraries(site.root)
    trained = find_trained_model(run, site, overrides)
    suffix = "" if quantization == "float32" else f"-{quantization}"
    name = file_name(trained.name) if overrides else trained.name.replace("/", "-")
    folder = out or Path("exports") / f"{name}-{to}{suffix}"
    card = as_markdown(find_card(run, site, overrides)) if to == "huggingface" else ""
    export(trained, to, quantization, folder, card)
    say(f"{trained.name} is exported to {folder}; {folder / 'README.md'} shows how to use it")
    print(folder)
