"""Translates a stream of lines: output for each line, warnings, and progress.

Takes blocks of lines as bytes and yields blocks with the same number of lines. Memory holds one block.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.inference.line_blocks import decode_line
from flows.views.terminal import PLAIN_PROGRESS_SECONDS, say

if TYPE_CHECKING:
    from model.decoding.translation import Translation

FIRST_REPORT_SECONDS = 5.0
"""The first progress message appears after this time."""
MAX_NAMED_LINES = 20
"""At most this many untranslated lines are reported one by one."""
LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Characters that some programs read as a line end, and that JSON does not escape."""


@dataclass
class LineWarning:
    """A warning for the end of the output, with the number of its lines and the first line."""

    what: str
    lines: int = 0
    first: int = 0

    def note(self, number: int) -> None:
        self.first = self.first or number
        self.lines += 1

    def __str__(self) -> str:
        several = f"{self.lines:,} lines, the first is " if self.lines > 1 else ""
        return f"{self.what}: {several}line {self.first}"


@dataclass
class TranslationStream:
    """Translates blocks of lines as they arrive.

    ``translate`` takes lines; ``seen`` is the length of the longest training source in pieces.
    """

    translate: Callable[[list[str]], Sequence[Translation]]
    seen: int
    as_json: bool

    def __post_init__(self) -> None:
        self.lines = 0
        self.untranslated = LineWarning("not translated, left empty")
        self.unreadable = LineWarning("not UTF-8, U+FFFD replaces the bytes that could not be read")
        self.unseen = LineWarning(
            f"a sentence has more than {self.seen} pieces, the longest in training, and may be translated badly"
        )
        self.cut = LineWarning("the output was cut at the maximum length")
        self.split = LineWarning("translated as several sentences (--split never: whole, as a run's sets are scored)")

    def translate_blocks(self, blocks: Iterable[Sequence[bytes]]) -> Iterable[bytes]:
        """Yield the output of each block, with a newline after each line."""
        for block in blocks:
            first = self.lines + 1
            texts = [decode_line(line, first=number == 1) for number, line in enumerate(block, first)]
            rows = []
            for number, (raw, text, line) in enumerate(zip(block, texts, self.translate(texts), strict=True), first):
                rows.append(self._row(number, text, line))
                if "\ufffd" in text and "\ufffd".encode() not in raw:
                    self.unreadable.note(number)
            self.lines += len(block)
            yield "".join(f"{row}\n" for row in rows).encode()

    def _row(self, number: int, source: str, line: Translation) -> str:
        error = f"line {number} has {line.refusal}" if line.refusal else ""
        if error:
            self.untranslated.note(number)
            if self.untranslated.lines <= MAX_NAMED_LINES:
                say(error)
        elif line.longest > self.seen:
            self.unseen.note(number)
        if not error and len(line.sources) > 1:
            self.split.note(number)
        if line.hypotheses and not line.hypotheses[0].finished:
            self.cut.note(number)
        if self.as_json:
            row: dict[str, Any] = {
                "line": number,
                "source": source,
                "sentences": len(line.sources),
                "hypotheses": [each.as_json() for each in line.hypotheses],
                "engine": line.engine,
            }
            if error:
                row["error"] = error
            return json.dumps(row, ensure_ascii=False).translate(LINE_ENDS)
        return line.hypotheses[0].text if line.hypotheses else ""

    @property
    def warnings(self) -> list[str]:
        """Warnings to print at the end. Untranslated lines are not included: they are errors."""
        warnings = (self.unreadable, self.unseen, self.cut, self.split)
        return [f"{warning}" for warning in warnings if warning.lines]


class RateDisplay:
    """Prints progress to stderr every few seconds if the work takes long."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.shown = self.started + FIRST_REPORT_SECONDS - PLAIN_PROGRESS_SECONDS

    def show(self, lines: int, share: float) -> None:
        """``share`` is the fraction of the input read so far, 0 if unknown."""
        now = time.monotonic()
        if now - self.shown >= PLAIN_PROGRESS_SECONDS:
            self.shown = now
            read = f" · {100 * share:.1f} % read" if share else ""
            say(f"{lines:,} lines · {lines / (now - self.started):,.1f} lines/s{read}")
