"""Print the trace of a pair: a heading for each stage the pair reached, and below it what the stage did to the pair.

Unprintable characters are shown as escapes (``\\u2028``), since they are what a reader of raw text looks for.
"""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from infra.guards.shown_text import shown
from model.decoding.translation import Hypothesis
from tasks.tracing.steps import (
    AttendedPiece,
    BeamRow,
    Cleaned,
    Decoded,
    Distilled,
    Dropped,
    Encoded,
    Missing,
    Mixed,
    PairTrace,
    Published,
    RuleVerdict,
    Scored,
    Sharded,
    Step,
    TeacherTranslation,
    Trained,
    Translated,
)

BAR_WIDTH = 20
"""Width of the bar for a weight of 1, in characters."""
VERDICT_STYLES = {"kept": "green", "rejected": "red", "not asked": "dim"}


def print_trace(traced: PairTrace, console: Console) -> None:
    """Print the trace to the console."""
    kind = f"a pair of the set {traced.set_name}" if traced.set_name else "a pair of the corpus"
    console.print(Text.assemble((traced.pair_id, "bold"), f", {kind}, in the run {traced.run}"))
    for note in traced.notes:
        console.print(Text(note, "yellow"))
    for step in traced.steps:
        stage, summary = heading(step)
        console.print()
        console.print(Text.assemble((stage, "bold"), "  ", (summary, "yellow" if isinstance(step, Missing) else "")))
        for part in body(step, traced):
            console.print(Padding(part, (0, 0, 0, 2)))


def heading(step: Step) -> tuple[str, str]:
    """Return the stage's name and a summary of what it did."""
    match step:
        case Missing():
            return step.stage, f"not there: {step.why}"
        case Published():
            files = " and ".join(dict.fromkeys(step.files))
            return step.stage, f"line {step.line:,} (counted from 0) of {files}"
        case Cleaned(rejected_by=""):
            return step.stage, f"kept: row {step.row:,} of the shuffled {step.file}"
        case Cleaned():
            return step.stage, f"rejected by {step.rejected_by}: row {step.row:,} of {step.file}; its walk ends here"
        case Mixed(source=""):
            return step.stage, "not translated: beyond synthetic.lines, too long, or without an end; its walk ends here"
        case Mixed():
            return step.stage, "the target of a synthetic pair"
        case Distilled(target=""):
            return step.stage, "no translation by the teacher ended, or the source is too long; its walk ends here"
        case Distilled():
            return step.stage, "the target is the teacher's translation that is nearest to the reference"
        case Encoded():
            return step.stage, f"{len(step.source_ids)} source pieces, {len(step.target_ids)} target pieces"
        case Sharded():
            return step.stage, f"row {step.row:,} of {step.file}"
        case Dropped():
            return step.stage, f"left out: {step.why}; its walk ends here"
        case Trained():
            return step.stage, _trained(step)
        case Translated():
            return step.stage, "by the best of the beam" if step.finished else "cut at the greatest length"
        case Decoded():
            return "translate", "once more, this sentence alone"
        case Scored():
            return step.stage, f"sentence BLEU {step.bleu:.1f}, chrF {step.chrf:.1f}"


def body(step: Step, traced: PairTrace) -> Iterator[RenderableType]:
    """Yield what to show below the heading, leaving out text that an earlier step has shown."""
    match step:
        case Published():
            yield _named([("source", step.source), ("target", step.target)])
        case Cleaned():
            read = [(each.source, each.target) for each in traced.steps if isinstance(each, Published)]
            if (step.source, step.target) in read:
                yield Text("normalising changes nothing")
            else:
                yield _named([("source", step.source), ("target", step.target)])
            yield _verdict_table(step.verdicts)
        case Mixed(source=source) if source:
            yield _named([("source", source), ("target", step.target)])
        case Distilled(translations=translations) if translations:
            yield _translation_table(translations)
        case Encoded():
            rows = [("source", step.source_pieces, step.source_ids), ("target", step.target_pieces, step.target_ids)]
            for side, pieces, ids in rows:
                yield _named([(side, " ".join(pieces)), ("", " ".join(map(str, ids)))])
        case Translated():
            yield _named(
                [
                    ("hypothesis", step.hypothesis),
                    ("score", f"{step.score:.3f}: log p {step.log_probability:.3f} over {step.pieces} pieces"),
                    ("reference", f"log p {step.reference_log_probability:.3f} over {step.reference_pieces} pieces"),
                ]
            )
        case Decoded():
            yield Text("the beam after each step; each row continues a row of the step before by one piece:")
            yield _step_table(step.steps)
            yield Text("\nwhat it found, by score:")
            yield _beam_table(step.beams)
            written = [each.hypothesis for each in traced.steps if isinstance(each, Translated)]
            if written and written[0] != step.beams[0].text:
                yield Text("\nnot what the stage wrote: beside other sentences, sums round otherwise", "yellow")
            yield Text("\neach written piece, and the source piece that it looked at most:")
            yield _attended_table(step.attended)
        case Scored():
            yield _named([("reference", step.reference), ("hypothesis", step.hypothesis)])


def visible(text: str) -> str:
    """Return the text with invisible characters, and spaces at its ends, as escapes."""
    inner = text.strip(" ")
    before, _, after = text.partition(inner) if inner else ("", "", text)
    ends = (r"\x20" * len(end) for end in (before, after))
    return shown(inner).join(ends)


def _trained(step: Trained) -> str:
    update = f"update {step.update:,} of {step.epoch_updates:,} in the first epoch, with {step.pairs - 1:,} other pairs"
    if step.update > step.updates:
        return f"never: it would be in {update}, but training ended after {step.updates:,}"
    return update


def _named(rows: Sequence[tuple[str, str]]) -> Table:
    table = _table("name", "text", header=False)
    table.columns[0].style = "dim"
    for name, text in rows:
        table.add_row(name, Text(visible(text)))
    return table


def _verdict_table(verdicts: Sequence[RuleVerdict]) -> Table:
    table = _table("rule", "verdict", "measured", "allowed")
    for verdict in verdicts:
        said = Text(verdict.said, VERDICT_STYLES[verdict.said])
        table.add_row(verdict.rule, said, Text(verdict.measured), Text(verdict.allowed))
    return table


def _beam_table(beams: Sequence[Hypothesis]) -> Table:
    table = _table("score", "log p", "pieces", "hypothesis")
    for beam in beams:
        text = visible(beam.text) if beam.finished else f"{visible(beam.text)} … (cut)"
        table.add_row(f"{beam.score:.3f}", f"{beam.log_probability:.3f}", f"{beam.length}", Text(text))
    return table


def _translation_table(translations: Sequence[TeacherTranslation]) -> Table:
    table = _table("", "sentence BLEU", "translation")
    for each in translations:
        table.add_row("taken" if each.taken else "", f"{each.bleu:.1f}", Text(visible(each.text)))
    return table


def _step_table(steps: Sequence[Sequence[BeamRow]]) -> Table:
    table = _table("step", "rank", "continues", "piece", "log p", "score", "hypothesis")
    for number, rows in enumerate(steps, start=1):
        for place, row in enumerate(rows):
            table.add_row(
                "" if place else f"{number}",
                f"{row.rank or 'ended'}",
                f"{row.continues or ''}",
                Text(visible(row.piece)),
                f"{row.log_probability:.3f}",
                f"{row.score:.3f}" if row.ended else "",
                Text(visible(row.text)),
                style="green" if row.ended else "",
            )
    return table


def _attended_table(pieces: Sequence[AttendedPiece]) -> Table:
    table = _table("written", "source", "weight", "")
    for piece in pieces:
        table.add_row(
            Text(piece.written), Text(piece.source), f"{piece.weight:.2f}", "▇" * round(BAR_WIDTH * piece.weight)
        )
    return table


def _table(*names: str, header: bool = True) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=header)
    for name in names:
        table.add_column(name, overflow="fold")
    return table
