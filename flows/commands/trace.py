"""``repro trace``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.runs.completion import RUN_NAMES, OverridesOption
from flows.views.terminal import console, print_json, say, show
from infra.errors import BadConfiguration
from infra.site import configured_site


def trace(
    what: Annotated[
        str,
        RUN_NAMES,
        Parameter(
            help="name of a run, or FILE.py:NAME for your own; or, with --attention, a sentence of the source language",
            allow_leading_hyphen=True,
        ),
    ],
    pair_id: Annotated[
        str, Parameter(help="name of a corpus part or evaluation set and a line number, for example demo:17")
    ] = "",
    *,
    attention: Annotated[bool, Parameter(help="draw the attention weights as a PNG file")] = False,
    out: Annotated[
        Path | None,
        Parameter(help="with --attention: the PNG file to write; default: attention.png", show_default=False),
    ] = None,
    model: Annotated[
        str,
        Parameter(
            help="with a sentence: the version that translates it, NAME@alias, NAME/version or NAME; "
            "default: demo@champion",
            show_default=False,
        ),
    ] = "",
    target: Annotated[str, Parameter(help="with a sentence: translation to show instead of the model's own")] = "",
    overrides: OverridesOption = (),
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Trace one sentence pair through every stage of a run, or draw the attention of a sentence.

    For a pair it shows raw text, filter verdicts, tokens, shard; for a dev or test pair also hypothesis, beams,
    attention and scores. Runs nothing, but names stages that have not run yet.

    With --attention and your own sentence in place of run and pair, a version translates the sentence, and the weights
    of every head and layer are drawn: encoder, decoder and cross-attention.

    For example:

    repro trace demo test:17 --attention --out looked.png

    repro trace "The old woman sees a dog." --attention --model demo@candidate --out dog.png
    """
    if out and not attention:
        raise BadConfiguration(f"--out is {out}, allowed is that with --attention")
    out = out or Path("attention.png")
    if attention and (out.is_dir() or not out.parent.is_dir()):
        raise BadConfiguration(f"--out is {out}, allowed is a file in an existing folder")
    if pair_id:
        if model or target:
            raise BadConfiguration(f"{'--model' if model else '--target'} is for a sentence, not for a pair of a run")
        _trace_pair(what, pair_id, out if attention else None, overrides, site, as_json)
    elif attention:
        if overrides or as_json:
            raise BadConfiguration(
                f"{'--set' if overrides else '--json'} is for a run and a pair, such as demo test:17"
            )
        _draw_sentence(what, model or "demo@champion", target, out, site)
    else:
        raise BadConfiguration("pair-id is missing, allowed is a pair such as demo:17, or a sentence with --attention")


def _trace_pair(run: str, pair_id: str, out: Path | None, overrides: tuple[str, ...], site: str, as_json: bool) -> None:
    from flows.inspection.trace import trace_pair
    from flows.runner.artifact_names import is_version
    from flows.views.trace_view import print_trace

    if is_version(run):
        raise BadConfiguration(f"{run!r} is a version, allowed is a run: it is traced by the run as it is defined now")
    walk = trace_pair(run, pair_id, overrides, site)
    if out:
        from tasks.evaluation.network_plots import attention_heads
        from tasks.evaluation.plots import LIGHT

        step = next((step for step in walk.steps if step.weights is not None), None)
        if step is None or step.weights is None:
            raise BadConfiguration(f"--attention needs a pair of a dev or test set; {pair_id} was not decoded")
        cross = (step.weights, step.values["written_pieces"], step.values["source_pieces"])
        out.write_bytes(attention_heads({"cross: translation over source": cross}, pair_id, LIGHT))
    if as_json:
        print_json(walk.as_json())
    else:
        print_trace(walk, console(stderr=False))
    if out:
        show(f"attention: {out}", aside=True)


def _draw_sentence(sentence: str, model: str, target: str, out: Path, site_name: str) -> None:
    """Draw every head and layer for a sentence and its translation, or ``target`` in its place."""
    site = configured_site(site_name)
    from flows.inference.load_version import load_version
    from flows.inference.sentence_attention import attention_of
    from flows.runner.find_run import find_version
    from tasks.evaluation.network_plots import attention_heads
    from tasks.evaluation.plots import LIGHT

    served = load_version(find_version(model, site), site, "own")
    text, maps = attention_of(served, sentence, target)
    titles = {
        "encoder: source over itself": maps["encoder"],
        "decoder: translation over itself": maps["decoder"],
        "cross: translation over source": maps["cross"],
    }
    drawn = {title: (found.weights.astype("float64"), found.rows, found.columns) for title, found in titles.items()}
    out.write_bytes(attention_heads(drawn, f"{served.name}: {text}", LIGHT))
    say(text)
    print(out)
