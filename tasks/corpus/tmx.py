"""Reads translation memories (TMX 1.4): the segments of one language as lines, one for each unit.

A unit that lacks the language gives an empty line, so that both sides keep the same number. Mark-up codes inside a
segment are dropped. expat parses the stream and loads no external files. A file that declares entities is
refused, because they can expand without bound or read other files.
"""

import io
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from infra.errors import BadData
from tasks.corpus.plain import LONGEST

BLOCK = 1 << 18
TEXT_INSIDE = ("hi", "mrk")
"""Elements inside a segment whose content is text; the content of others (``bpt``, ``ph``, …) is code."""


def segments(stream: io.BufferedReader, language: str, label: str) -> Iterator[list[str]]:
    """The segments in ``language``; ``en`` also matches ``en-GB`` and ``en_GB``. Raises BadData if no unit has it."""
    units = _Units(language.lower().replace("_", "-"), label)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = units.begin
    parser.EndElementHandler = units.end
    parser.CharacterDataHandler = units.text
    parser.EntityDeclHandler = units.refuse
    try:
        while block := stream.read(BLOCK):
            parser.Parse(block, False)
            yield units.take()
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: an encoding that expat cannot decode
        raise BadData(f"{label} is no TMX, or cut short or damaged ({error})") from error
    yield units.take()
    if units.count and not units.matched:
        raise BadData(f"{label}: no unit has that language; they have {', '.join(sorted(units.languages)[:20])}")


class _Units:
    """Handlers for expat that collect the first matching segment of each unit."""

    def __init__(self, language: str, label: str) -> None:
        self.language = language
        self.label = label
        self.count = self.matched = 0
        self.languages: set[str] = set()
        self._done: list[str] = []
        self._segment: list[str] | None = None
        """The text of the current unit's segment; None until it has one."""
        self._wanted = self._open = False
        self._code = self._length = 0

    def take(self) -> list[str]:
        done = self._done
        self._done = []
        return done

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        if self._open:
            self._code += bool(self._code) or name not in TEXT_INSIDE
        elif name == "tu":
            self._segment = None
        elif name == "tuv":
            code = (attributes.get("xml:lang") or attributes.get("lang") or "").lower().replace("_", "-")
            if len(self.languages) < 100:
                self.languages.add(code)
            matches = code == self.language or code.startswith(f"{self.language}-")
            self._wanted = matches and self._segment is None
        elif name == "seg" and self._wanted:
            self._segment = []
            self._open = True
            self._length = 0

    def end(self, name: str) -> None:
        if self._open:
            if self._code:
                self._code -= 1
            elif name == "seg":
                self._open = self._wanted = False
        elif name == "tu":
            self.count += 1
            self.matched += self._segment is not None
            self._done.append(" ".join("".join(self._segment or []).replace("\r", "\n").split("\n")).strip())

    def text(self, data: str) -> None:
        if self._open and not self._code and self._segment is not None:
            self._segment.append(data)
            self._length += len(data)
            if self._length > LONGEST:
                raise BadData(f"{self.label} has a segment of more than {LONGEST:,} characters: that is no text")

    def refuse(self, name: str, *_: Any) -> None:
        raise BadData(f"{self.label} declares an entity ({name[:40]}): such files are refused")
