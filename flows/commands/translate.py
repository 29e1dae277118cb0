"""``repro translate``."""

import sys
from typing import Annotated

from cyclopts import Parameter

from infra.quiet import settle
from infra.site import Site


def translate(
    *,
    model: Annotated[str, Parameter(help="NAME@alias or NAME/version")] = "demo@champion",
    beam: Annotated[int, Parameter(help="hypotheses kept at each step; 1 is greedy")] = 4,
) -> None:
    """Translate lines of stdin to stdout with a registered model.

    Example: echo "The old woman sees a dog." | repro translate --model demo@candidate
    """
    from infra.registry import local_folder, resolve
    from model.config import Decoding
    from model.translator import Translator

    site = Site.named()
    settle(site.root)
    folder = local_folder(site.tracking, resolve(site.tracking, model))
    weights, vocabulary = folder / "weights", folder / "vocabulary"
    translator = Translator.load(weights, vocabulary, device=site.device, threads=site.threads_each)
    lines = [line.rstrip("\r\n") for line in sys.stdin.buffer.read().decode("utf-8", "replace").split("\n")]
    if lines and not lines[-1]:
        lines.pop()
    for translation in translator.translate(lines, Decoding(beam=beam)):
        print(translation.text)
