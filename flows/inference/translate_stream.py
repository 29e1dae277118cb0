"""A stream of lines through a translator: what is written for each, what is said of some, and how far it is.

In come blocks of lines as bytes; out go blocks of lines as bytes, as many. Memory holds one block. How a line is
translated is a function from outside.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.inference.line_blocks import decode_line
from flows.views.terminal import PLAIN_PROGRESS_SECONDS, say

if TYPE_CHECKING:
    from model.decoding.lines import TranslatedLine
    from model.decoding.sentence_splitting import SentenceSplitter
    from model.decoding.translator import Translation

FIRST_REPORT_SECONDS = 5.0
"""Nothing is said of how far it is before."""
MAX_NAMED_LINES = 20
"""So many lines that are too long are named one by one."""
LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""What some readers take for the end of a line, and JSON would leave as it is."""


@dataclass
class LineWarning:
    """Lines of which something must be said at the end: how many, and which is the first."""

    what: str
    lines: int = 0
    first: int = 0

    def note(self, number: int) -> None:
        self.first = self.first or number
        self.lines += 1

    def __str__(self) -> str:
        several = f"{self.lines:,} lines, the first is " if self.lines > 1 else ""
        return f"{self.what}: {several}line {self.first}"


class TranslationStream:
    """Translates blocks of lines as they come.

    ``named`` says what is wrong with a line that has no translation, ``seen`` is the longest source of training in
    pieces, ``sentences`` tells apart those that a line may hold although it was translated as one.
    """

    def __init__(
        self,
        translate: Callable[[list[str]], Sequence[TranslatedLine]],
        named: Callable[[TranslatedLine, int], str],
        seen: int,
        sentences: SentenceSplitter,
        as_json: bool,
    ) -> None:
        self.translate, self.named, self.seen, self.sentences = translate, named, seen, sentences
        self.as_json = as_json
        self.lines = 0
        self.too_long = LineWarning("too long for this model, left empty")
        self.unreadable = LineWarning("not UTF-8, U+FFFD stands for what could not be read")
        self.several = LineWarning("several sentences were translated as one (--split always parts them)")
        self.unseen = LineWarning(
            f"a sentence has more than the {seen} pieces that training saw, it may be translated badly"
        )
        self.cut = LineWarning("the output was cut at the greatest length that the search allows")

    def translate_blocks(self, blocks: Iterable[Sequence[bytes]]) -> Iterable[bytes]:
        """For each block what is to be written, each line with its newline."""
        for block in blocks:
            begin = self.lines + 1
            sources = [decode_line(line, first=number == 1) for number, line in enumerate(block, begin)]
            translated = self.translate(sources)
            rows = [
                self._row(number, source, line)
                for number, (source, line) in enumerate(zip(sources, translated, strict=True), begin)
            ]
            for number, (source, raw) in enumerate(zip(sources, block, strict=True), begin):
                if "\ufffd" in source and "\ufffd".encode() not in raw:
                    self.unreadable.note(number)
            self.lines += len(block)
            yield "".join(f"{row}\n" for row in rows).encode()

    def _row(self, number: int, source: str, line: TranslatedLine) -> str:
        error = ""
        if not line.translations:
            error = self.named(line, number)
            self.too_long.note(number)
            if self.too_long.lines <= MAX_NAMED_LINES:
                say(error)
        elif line.longest > self.seen:
            self.unseen.note(number)
        if line.sentences == 1 and len(self.sentences(source)) > 1:
            self.several.note(number)
        if line.translations and not line.translations[0].finished:
            self.cut.note(number)
        if self.as_json:
            told = {"line": number, "source": source, "sentences": line.sentences}
            found: dict[str, Any] = {"hypotheses": [_as_json(each) for each in line.translations]}
            text = json.dumps(told | found | ({"error": error} if error else {}), ensure_ascii=False)
            return text.translate(LINE_ENDS)
        return line.translations[0].text if line.translations else ""

    @property
    def warnings(self) -> list[str]:
        """What is to be said at the end; of lines that are too long nothing, these are a failure."""
        concerns = (self.unreadable, self.several, self.unseen, self.cut)
        return [f"{concern}" for concern in concerns if concern.lines]


class RateDisplay:
    """Says on stderr how far it is, where it takes long; on a terminal always in the same line."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.shown = self.begun + FIRST_REPORT_SECONDS - PLAIN_PROGRESS_SECONDS
        # What is printed to the same terminal would be torn apart.
        self.live = sys.stderr.isatty() and not sys.stdout.isatty()

    def show(self, lines: int, share: float) -> None:
        """``share`` of the input has been read, 0 where that is not known."""
        now = time.monotonic()
        if now - self.shown < PLAIN_PROGRESS_SECONDS and not (self.live and now - self.begun > FIRST_REPORT_SECONDS):
            return
        self.shown = now
        read = f" · {100 * share:.1f} % read" if share else ""
        text = f"{lines:,} lines · {lines / (now - self.begun):,.1f} lines/s{read}"
        if self.live:
            sys.stderr.write(f"\r\x1b[2Krepro: {text}")
            sys.stderr.flush()
        else:
            say(text)

    def end(self) -> None:
        if self.live and self.shown > self.begun:
            sys.stderr.write("\r\x1b[2K")


def _as_json(translation: Translation) -> dict[str, Any]:
    return {
        "text": translation.text,
        "score": translation.score,
        "log_probability": translation.log_probability,
        "pieces": translation.length,
        "finished": translation.finished,
    }
