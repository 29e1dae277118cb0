"""Prints the trace of a pair: a heading for each stage that the pair reached, then what the stage did to the pair.

Unprintable characters are shown as escapes (``\\u2028``), since readers of raw text look for them.
"""

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flows.inspection.trace import PairTrace, Step
from flows.views.tables import plain_table
from infra.guards.shown_text import shown
from tasks.cleaning.filters import SIDES

BAR_WIDTH = 20
"""Width of the bar for a weight of 1, in characters."""
VERDICT_STYLES = {"kept": "green", "rejected": "red", "not asked": "dim"}
TEXTS = ("source", "target", "reference", "hypothesis")


def print_trace(traced: PairTrace, console: Console) -> None:
    kind = f"a pair of the set {traced.set_name}" if traced.set_name else "a pair of the corpus"
    console.print(Text.assemble((traced.pair_id, "bold"), f", {kind}, in the run {traced.run}"))
    for note in traced.notes:
        console.print(Text(note, "yellow"))
    steps = {step.kind: step.values for step in traced.steps}
    for step in traced.steps:
        stage = "translate" if step.kind == "decoded" else step.stage
        style = "yellow" if step.kind == "missing" else ""
        console.print()
        console.print(Text.assemble((stage, "bold"), "  ", (step.says, style)))
        for part in body(step, steps):
            console.print(Padding(part, (0, 0, 0, 2)))


def body(step: Step, steps: Mapping[str, Mapping[str, object]]) -> Iterator[RenderableType]:
    """Yield the parts below the heading; ``steps`` are the values of all steps, by kind."""
    found = step.values
    match step.kind:
        case "cleaned":
            published = steps.get("published", {})
            if all(published.get(side) == found[side] for side in SIDES):
                yield Text("normalising changes nothing")
            else:
                yield _named((side, found[side]) for side in SIDES)
            verdicts = (
                (each["rule"], Text(each["said"], VERDICT_STYLES[each["said"]]), each["measured"], each["allowed"])
                for each in found["verdicts"]
            )
            yield _table("rule", "verdict", "measured", "allowed", rows=verdicts)
        case "distilled" if found["translations"]:
            rows = (
                ("taken" if each["taken"] else "", f"{each['bleu']:.1f}", each["text"])
                for each in found["translations"]
            )
            yield _table("", "sentence BLEU", "translation", rows=rows)
        case "encoded":
            for side in SIDES:
                pieces = " ".join(found[f"{side}_pieces"])
                yield _named([(side, pieces), ("", " ".join(map(str, found[f"{side}_ids"])))])
        case "translated":
            score = f"{found['score']:.3f}: log p {found['log_probability']:.3f} over {found['pieces']} pieces"
            of_reference = f"log p {found['reference_log_probability']:.3f} over {found['reference_pieces']} pieces"
            yield _named([("hypothesis", found["hypothesis"]), ("score", score), ("reference", of_reference)])
        case "decoded":
            yield from _decoded(step, f"{steps.get('translated', {}).get('hypothesis', '')}")
        case _:
            if texts := [(name, found[name]) for name in TEXTS if found.get(name)]:
                yield _named(texts)


def _decoded(step: Step, written: str) -> Iterator[RenderableType]:
    """Yield the tables of a search; ``written`` is the translation by the stage ``translate``, "" if none."""
    found = step.values
    yield Text("the beam after each step; each row continues a row of the step before by one piece:")
    table = _table("step", "rank", "continues", "piece", "log p", "score", "hypothesis")
    for number, rows in enumerate(found["steps"], start=1):
        for place, row in enumerate(rows):
            table.add_row(
                "" if place else f"{number}",
                f"{row['rank'] or 'ended'}",
                f"{row['continues'] or ''}",
                Text(visible(row["piece"])),
                f"{row['log_probability']:.3f}",
                f"{row['score']:.3f}" if row["ended"] else "",
                Text(visible(row["text"])),
                style="green" if row["ended"] else "",
            )
    yield table
    yield Text("\nwhat it found, by score:")
    beams = (
        (
            f"{beam['score']:.3f}",
            f"{beam['log_probability']:.3f}",
            f"{beam['pieces']}",
            beam["text"] if beam["finished"] else f"{beam['text']} … (cut)",
        )
        for beam in found["beams"]
    )
    yield _table("score", "log p", "pieces", "hypothesis", rows=beams)
    if written and written != found["beams"][0]["text"]:
        yield Text("\nnot what the stage wrote: beside other sentences, sums round otherwise", "yellow")
    yield Text("\neach written piece, and the source piece that it looked at most:")
    attended = (
        (each["written"], each["source"], f"{each['weight']:.2f}", "▇" * round(BAR_WIDTH * each["weight"]))
        for each in found["attended"]
    )
    yield _table("written", "source", "weight", "", rows=attended)


def visible(text: str) -> str:
    """Escape invisible characters, and spaces at the ends of the text."""
    inner = text.strip(" ")
    before, _, after = text.partition(inner) if inner else ("", "", text)
    ends = (r"\x20" * len(end) for end in (before, after))
    return shown(inner).join(ends)


def _named(rows: Iterable[tuple[str, str]]) -> Table:
    table = _table("name", "text", rows=rows)
    table.show_header = False
    table.columns[0].style = "dim"
    return table


def _table(*names: str, rows: Iterable[tuple[str | Text, ...]] = ()) -> Table:
    table = plain_table(*names)
    for row in rows:
        table.add_row(*(each if isinstance(each, Text) else Text(visible(each)) for each in row))
    return table
