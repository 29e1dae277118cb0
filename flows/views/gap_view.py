"""Shows ``gap.json`` for ``repro gap``: the waterfall, the causes that need a training, further measurements."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from flows.views.tables import plain_table

BAR = 24
"""Characters of the longest bar."""
MOST = 12
"""Settings in the terminal; the page has all."""


def gap_tables(values: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the tables in order; "not in the bars" is plain text, whose commands stay on one line."""
    claim = values["claim"]
    steps = values["steps"]
    unit = max(abs(each["score"]) for each in steps) / BAR or 1.0
    rows: list[Sequence[str]] = [(f"claim: {claim['name']} ({claim['protocol']})", f"{claim['score']:.2f}")]
    for each in steps:
        drawn = ("█" if each["score"] > 0 else "▒") * round(abs(each["score"]) / unit)
        rows.append((each["about"], f"{each['score']:+.2f}", _interval(each), drawn))
    own = values["system"]
    rows.append((f"{own['about']} on {values['set']} ({values['protocol']})", f"{own['score']:.2f}", _interval(own)))
    yield plain_table("from the claim to the score", "BLEU", "95 % interval", "", rows=rows)
    if values["differences"]:
        differences = [[*each.values()] for each in values["differences"]]
        if more := len(differences[MOST:]):
            differences[MOST:] = [[f"and {more} more settings: on the page"]]
        yield plain_table("needs a training", "claimed", "here", "command", "costs", rows=differences)
    if values["left_out"]:
        yield "\n".join(["not in the bars", *values["left_out"]])
    beside = [(each["about"], f"{each['score']:.2f}", _interval(each)) for each in values["beside"]]
    yield plain_table("measured beside it", "BLEU", "95 % interval", rows=beside)


def _interval(row: Mapping[str, Any]) -> str:
    return f"{row['low']:.2f} … {row['high']:.2f}"
