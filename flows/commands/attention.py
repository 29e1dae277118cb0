"""``repro attention``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.views.terminal import say
from infra.errors import BadConfiguration
from infra.servers.environment import configure_libraries
from infra.site import Site


def attention(
    sentence: Annotated[str, Parameter(help="one sentence of the source language", allow_leading_hyphen=True)],
    *,
    model: Annotated[str, Parameter(help="NAME@alias, NAME/version or NAME")] = "demo@champion",
    target: Annotated[str, Parameter(help="translation to show instead of the model's own")] = "",
    out: Annotated[Path, Parameter(help="PNG file to write")] = Path("attention.png"),
    dark: Annotated[bool, Parameter(negative=(), help="use colours for a dark page")] = False,
) -> None:
    """Draw the attention weights of every head and layer: encoder, decoder, and cross-attention.

    Example: repro attention "The old woman sees a dog." --model demo@candidate --out dog.png
    """
    site = Site.named()
    configure_libraries(site.root)
    if out.is_dir() or not out.parent.is_dir():
        raise BadConfiguration(f"--out is {out}, allowed is a file in an existing folder")
    from flows.inference.attention import attention_of
    from flows.inference.served_model import load_version, select_versions
    from tasks.evaluation.plots import DARK, LIGHT, attention_heads

    [version] = select_versions([model], site)
    served = load_version(version, site, "own")
    text, maps = attention_of(served, sentence, target)
    kinds = {
        "encoder: source over itself": maps["encoder"],
        "decoder: translation over itself": maps["decoder"],
        "cross: translation over source": maps["cross"],
    }
    drawn = {name: (each.weights.astype("float64"), each.rows, each.columns) for name, each in kinds.items()}
    out.write_bytes(attention_heads(drawn, f"{served.name}: {text}", DARK if dark else LIGHT))
    say(f"{text}")
    print(out)
