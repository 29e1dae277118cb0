"""The limits of runs (``expect``) over the runs on record: one line for each limit."""

from collections.abc import Sequence
from dataclasses import dataclass

from flows.inspection.run_history import RecordedRun

SHOWN = 60
"""The last values of a limit that its line shows."""


@dataclass(frozen=True)
class LimitLine:
    """A limit as the newest run on record had it, and its values over the runs."""

    run: str
    place: str
    """``score dev bleu``"""
    limit: str
    """``bleu >= 20``"""
    bound: float
    at_least: bool
    warns: bool
    values: tuple[float, ...]
    """Oldest first."""

    @property
    def holds(self) -> bool:
        return self.values[-1] >= self.bound if self.at_least else self.values[-1] <= self.bound


def limit_lines(newest_first: Sequence[RecordedRun], run: str = "") -> list[LimitLine]:
    """The lines of one run, or of all for "", by run and in the order of the newest record's limits."""
    # A fact may have a limit on each side.
    values: dict[tuple[str, str, bool], list[float]] = {}
    newest: dict[tuple[str, str, bool], LimitLine] = {}
    for each in newest_first:
        for check in each.checks if each.run == run or not run else ():
            if check["value"] is None:
                continue
            at_least = ">=" in check["limit"]
            name = each.run, check["place"], at_least
            values.setdefault(name, []).append(check["value"])
            words = {word: check[word] for word in ("place", "limit", "bound", "warns")}
            newest.setdefault(name, LimitLine(each.run, **words, at_least=at_least, values=()))
    lines = [LimitLine(**{**vars(line), "values": tuple(values[name][:SHOWN][::-1])}) for name, line in newest.items()]
    return sorted(lines, key=lambda line: line.run)
