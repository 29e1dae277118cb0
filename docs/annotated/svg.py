"""Draws the figures of the page as SVG text: words, lines, bars and heat maps on a sheet as wide as a phone.

The background is transparent. Ink, lines and colours follow the reader's theme, light or dark, by a media query inside
the file, so a figure is one image that loads nothing. Equal numbers give equal text.
"""

from collections import defaultdict
from collections.abc import Sequence
from html import escape

WIDTH = 360
"""Units across a figure: the pixels of a phone, so a font size is in pixels there."""
SHOWN = 480
"""Pixels across a figure on a wide screen."""
LEVELS = 24
"""Shades of a heat map."""
STYLE = """
svg{--ink:#1f2430;--muted:#5b6472;--line:#c3c8d0;--plus:#1f62b0;--minus:#c4600f}
@media(prefers-color-scheme:dark){svg{--ink:#e5e8ee;--muted:#a3acba;--line:#4a5261;--plus:#7cb5f2;--minus:#f2a35e}}
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--ink)}
.ink{fill:var(--ink)}.muted{fill:var(--muted)}.plus{fill:var(--plus)}.minus{fill:var(--minus)}.bold{font-weight:700}.small{font-size:10.5px}
.line{stroke:var(--line);fill:none}.curve{stroke:var(--ink);stroke-width:2;fill:none}
.curve.plus{stroke:var(--plus);fill:none}.curve.minus{stroke:var(--minus);fill:none}.thin{stroke-width:1.2}
.dashed{stroke-dasharray:5 3}
"""


class Sheet:
    """A figure that is drawn from top to bottom; ``y`` is where the next part begins, in units of ``WIDTH``."""

    def __init__(self, about: str) -> None:
        """``about`` says what the figure shows, for those who do not see it."""
        self.about = about
        self.parts: list[str] = []
        self.y = 0.0

    def words(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start", turn: float = 0) -> None:
        """Write one line with its base at (x, y); ``kind`` names classes of ``STYLE``, ``turn`` is in degrees."""
        kinds = f' class="{kind}"' if kind else ""
        anchored = f' text-anchor="{anchor}"' if anchor != "start" else ""
        turned = f' transform="rotate({number(turn)} {number(x)} {number(y)})"' if turn else ""
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}"{kinds}{anchored}{turned}>{escape(text)}</text>')

    def heading(self, text: str, remark: str = "") -> None:
        """Write a bold line, with a muted one below it, and go below them."""
        self.words(0, self.y + 13, text, "bold")
        self.y += 18
        if remark:
            self.words(0, self.y + 11, remark, "muted")
            self.y += 16
        self.y += 4

    def path(self, points: Sequence[tuple[float, float]], kind: str = "line") -> None:
        """Draw a line through points."""
        places = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self.parts.append(f'<polyline class="{kind}" points="{places}"/>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, opacity: float = 1) -> None:
        """Draw a rectangle, filled for the kinds ``plus``, ``minus`` and ``muted``, empty for ``line``."""
        seen = f' fill-opacity="{number(opacity)}"' if opacity < 1 else ""
        place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        self.parts.append(f'<rect class="{kind}" {place}{seen}/>')

    def dot(self, x: float, y: float, radius: float, kind: str) -> None:
        """Draw a filled circle."""
        self.parts.append(f'<circle class="{kind}" cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"/>')

    def heat(
        self, values: Sequence[Sequence[float]], x: float, y: float, width: float, height: float, most: float = 0
    ) -> None:
        """Draw a matrix: zero is the page, ``most`` the full colour, negative numbers have the other colour.

        ``width`` and ``height`` are those of a cell; ``most`` is by default the largest magnitude.
        """
        most = most or max(abs(value) for row in values for value in row) or 1
        shades: dict[tuple[str, int], list[str]] = defaultdict(list)
        for down, row in enumerate(values):
            levels = [round(max(-1, min(1, value / most)) * LEVELS) for value in row]
            across = 0
            while across < len(levels):
                end = across + 1
                while end < len(levels) and levels[end] == levels[across]:
                    end += 1
                if level := levels[across]:
                    cells = f"M{across} {down}h{end - across}v1h-{end - across}z"
                    shades["plus" if level > 0 else "minus", abs(level)].append(cells)
                across = end
        self.parts.append(
            f'<g transform="translate({number(x)} {number(y)}) scale({number(width)} {number(height)})" '
            'shape-rendering="crispEdges">'
        )
        for (kind, level), cells in sorted(shades.items()):
            self.parts.append(f'<path class="{kind}" fill-opacity="{number(level / LEVELS)}" d="{"".join(cells)}"/>')
        self.parts.append("</g>")
        self.box(x, y, width * len(values[0]), height * len(values), "line")

    def table(
        self,
        values: Sequence[Sequence[float]],
        rows: Sequence[str],
        columns: Sequence[str],
        x: float,
        y: float,
        cell: float,
        most: float = 0,
    ) -> None:
        """Draw a square heat map at (x, y) with the names of its rows to the left and of its columns above it."""
        self.heat(values, x, y, cell, cell, most)
        for down, name in enumerate(rows):
            self.words(x - 4, y + cell * (down + 0.5) + 3.7, name, "small", "end")
        for across, name in enumerate(columns):
            self.words(x + cell * (across + 0.5) + 3, y - 4, name, "small", turn=-55)

    def svg(self) -> str:
        """The file's text."""
        height = self.y + 4
        size = f'width="{SHOWN}" height="{number(height * SHOWN / WIDTH)}" viewBox="0 0 {WIDTH} {number(height)}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(self.about)}</title>'
        return "\n".join([head, f"<style>{STYLE}</style>", *self.parts, "</svg>\n"])


def number(value: float) -> str:
    """A number with at most two decimals, without zeros at its end."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


class Axes:
    """A rectangle of a sheet with a scale on either side."""

    def __init__(
        self,
        sheet: Sheet,
        frame: tuple[float, float, float, float],
        x_range: tuple[float, float],
        y_range: tuple[float, float],
    ) -> None:
        """``frame`` is left, top, width and height in units of the sheet."""
        self.sheet = sheet
        self.left, self.top, self.width, self.height = frame
        self.x_range = x_range
        self.y_range = y_range

    def x(self, value: float) -> float:
        """Where a value lies across the sheet."""
        low, high = self.x_range
        return self.left + (value - low) / (high - low) * self.width

    def y(self, value: float) -> float:
        """Where a value lies down the sheet."""
        low, high = self.y_range
        return self.top + self.height - (value - low) / (high - low) * self.height

    def curve(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """Draw a curve through points (x, y)."""
        self.sheet.path([(self.x(x), self.y(y)) for x, y in points], f"curve {kind}")

    def scale_x(self, ticks: Sequence[tuple[float, str]], name: str) -> None:
        """Draw the lower edge with its numbers and its name."""
        bottom = self.top + self.height
        self.sheet.path([(self.left, bottom), (self.left + self.width, bottom)])
        for value, text in ticks:
            self.sheet.words(self.x(value), bottom + 14, text, "muted small", "middle")
        self.sheet.words(self.left + self.width / 2, bottom + 29, name, "muted", "middle")

    def scale_y(self, ticks: Sequence[tuple[float, str]]) -> None:
        """Draw a line across at each tick, with its number to the left."""
        for value, text in ticks:
            y = self.y(value)
            self.sheet.path([(self.left, y), (self.left + self.width, y)], "line thin")
            self.sheet.words(self.left - 5, y + 4, text, "muted small", "end")
