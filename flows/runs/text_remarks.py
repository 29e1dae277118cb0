"""What ``repro new`` says of a user's text that looks like a mistake, each in one sentence with the way out."""

from collections.abc import Iterator

import polars as pl

from flows.runs.languages import SCRIPT_OF, WITHOUT_SPACES
from flows.runs.own_text import TextFile, TextReport, exchanged
from flows.runs.run import Run
from tasks.cleaning.filters import SIDES, InvalidUnicode, NotIn
from tasks.stages.clean import FEWEST_JUDGED

MANY = 0.2
"""The share of lines from which on swapped sides and repeated lines are said."""
MANY_BROKEN = 0.01
"""The share of lines from which on broken characters are said: single ones are usual."""


def remarks_on_text(report: TextReport, run: Run) -> Iterator[str]:
    """Sentences about the training text."""
    looked_at = report.looked_at
    rejected_by = report.rejected_by
    languages = run.corpus.source_language, run.corpus.target_language
    for each in languages:
        if each not in SCRIPT_OF and each not in WITHOUT_SPACES:
            yield f"nothing is known of the language {each!r}: no filter looks at its script; --languages names another"
    if report.swapped > MANY * looked_at:
        yield _exchanged(f"in {report.swapped:,} pairs", languages, "exchange --source and --target, or --languages")
    if (broken := rejected_by.get(InvalidUnicode().name, 0)) > MANY_BROKEN * looked_at:
        yield f"{broken:,} pairs are not UTF-8; convert the file, for example by iconv -f latin1 -t utf-8"
    if (known := rejected_by.get(NotIn().name, 0)) > MANY * looked_at:
        yield f"{known:,} pairs have a line of a dev or test set; is a file given twice?"
    rejected = report.rejected - known
    most = run.filters.max_rejected
    if looked_at >= FEWEST_JUDGED and rejected > most * looked_at:
        yield (
            f"the run would stop at clean: its filters reject {rejected / looked_at:.0%}, filters.max_rejected allows "
            f"{most:.0%}; mend the text or the languages, or raise filters.max_rejected"
        )


def remarks_on_set(name: str, frame: pl.DataFrame, run: Run) -> Iterator[str]:
    """Sentences about a dev or test set; ``frame`` has its pairs."""
    if (count := exchanged(frame, run.filters)) > MANY * frame.height:
        languages = run.corpus.source_language, run.corpus.target_language
        yield f"{name}: " + _exchanged(f"in {count:,} pairs", languages, "give its files in the other order")
    broken = frame.select(pl.any_horizontal(pl.col(SIDES).str.contains("\ufffd", literal=True)).sum()).item()
    if broken:
        yield f"{name}: {broken:,} pairs are not UTF-8; convert the file, for example by iconv -f latin1 -t utf-8"


def remarks_on_columns(sides: tuple[TextFile, TextFile], first: tuple[str, str]) -> Iterator[str]:
    """A sentence if the columns are numbered and the ``first`` row looks like their names."""
    if all(side.column.isdigit() for side in sides) and all(value.isidentifier() for value in first):
        yield (
            f"the first row, {first[0]!r} and {first[1]!r}, may be the names of the columns; if so, give these in "
            "place of numbers"
        )


def _exchanged(where: str, languages: tuple[str, str], way_out: str) -> str:
    source, target = languages
    return f"the sides look exchanged: {where} the source looks like {target} and the target like {source}; {way_out}"
