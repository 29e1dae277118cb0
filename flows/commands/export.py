"""``repro export``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.inference.export import Quantization, Target
from flows.views.terminal import say
from infra.servers.environment import configure_libraries
from infra.site import Site


def export(
    run: Annotated[str, Parameter(help="a run, or a version as in demo@champion or demo/3")],
    *,
    to: Annotated[Target, Parameter(help="whose format")],
    quantization: Annotated[
        Quantization,
        Parameter(help="how CTranslate2 keeps matrices; int8 is a quarter of the size, and faster on CPUs"),
    ] = "float32",
    out: Annotated[
        Path | None, Parameter(help="the folder, which must not be there yet", show_default="exports/RUN-FORMAT")
    ] = None,
) -> None:
    """Write a trained model, its vocabulary and how to search it for a program that knows nothing of this one.

    For example:

    repro export demo@candidate --to ctranslate2 --quantization int8

    repro export multi30k-ende --to huggingface --out my-model
    """
    from flows.inference.export import export, find_trained_model

    site = Site.named()
    configure_libraries(site.root)
    trained = find_trained_model(run, site)
    mark = "" if quantization == "float32" else f"-{quantization}"
    place = out or Path("exports") / f"{trained.name.replace('/', '-')}-{to}{mark}"
    export(trained, to, quantization, place)
    say(f"{trained.name} is in {place}, and {place / 'README.md'} says how to use it")
    print(place)
