"""Translation memories (TMX 1.4): one language's segments as lines, one for each unit.

A unit that lacks the language gives an empty line, so that both sides keep the same number. Codes of mark-up inside a
segment go, the text between them stays. Read as a stream by expat, which fetches nothing; a file that declares
entities is refused, since they serve only to swell or to read other files.
"""

import io
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from infra.errors import BadData
from tasks.corpus.plain import LONGEST

BLOCK = 1 << 18
TEXT_INSIDE = ("hi", "mrk")
"""Elements of a segment whose content is text; that of others (``bpt``, ``ph``, …) is code."""


def segments(stream: io.BufferedReader, language: str, told: str) -> Iterator[list[str]]:
    """The segments in ``language``: ``en`` also means ``en-GB``. Raises BadData where no unit has it."""
    units = _Units(language.lower(), told)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = units.begin, units.end
    parser.CharacterDataHandler = units.text
    parser.EntityDeclHandler = units.refuse
    try:
        while block := stream.read(BLOCK):
            parser.Parse(block, False)
            yield units.taken()
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise BadData(f"{told} is no TMX, or cut short or damaged ({error})") from error
    yield units.taken()
    if units.count and not units.matched:
        raise BadData(f"{told}: no unit has that language; they have {', '.join(sorted(units.languages)[:20])}")


class _Units:
    """What expat calls: collects the first matching segment of each unit."""

    def __init__(self, language: str, told: str) -> None:
        self.language, self.told = language, told
        self.count = self.matched = 0
        self.languages: set[str] = set()
        self._done: list[str] = []
        self._segment: list[str] | None = None
        """Of the present unit; None until it has one."""
        self._wanted = self._open = False
        self._code = self._length = 0

    def taken(self) -> list[str]:
        done, self._done = self._done, []
        return done

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        if self._open:
            self._code += bool(self._code) or name not in TEXT_INSIDE
        elif name == "tu":
            self._segment = None
        elif name == "tuv":
            said = (attributes.get("xml:lang") or attributes.get("lang") or "").lower().replace("_", "-")
            if len(self.languages) < 100:
                self.languages.add(said)
            fits = said == self.language or said.startswith(f"{self.language}-")
            self._wanted = fits and self._segment is None
        elif name == "seg" and self._wanted:
            self._segment, self._open, self._code, self._length = [], True, 0, 0

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
                raise BadData(f"{self.told} has a segment of more than {LONGEST:,} characters: that is no text")

    def refuse(self, name: str, *_: Any) -> None:
        raise BadData(f"{self.told} declares an entity ({name[:40]}): such files are refused")
