"""A small line of one number over runs, as SVG in the text of a page; it needs no program and no other file."""

from collections.abc import Sequence

WIDTH = 132
HEIGHT = 30
MARGIN = 4


class Svg(str):
    """A picture as text, made of numbers alone, which templates need not escape."""

    def __html__(self) -> str:
        return self


def sparkline(values: Sequence[float], bound: float, at_least: bool) -> Svg:
    """The values in their order, the limit as a dashed line, and a dot for the last and each value that breaks it."""
    low = min(*values, bound)
    high = max(*values, bound)
    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    scale = (HEIGHT - 2 * MARGIN) / (high - low) if high > low else 0.0

    def place(index: int, value: float) -> tuple[float, float]:
        return round(MARGIN + index * step, 1), round(HEIGHT - MARGIN - (value - low) * scale, 1)

    points = [place(index, value) for index, value in enumerate(values)]
    broken = [value < bound if at_least else value > bound for value in values]
    level = place(0, bound)[1]
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="2.5" class="{"broken" if is_broken else "kept"}"/>'
        for (x, y), is_broken, last in zip(points, broken, [*[False] * (len(points) - 1), True], strict=True)
        if is_broken or last
    )
    runs = f"{len(values)} runs, from {values[0]:,.6g} to" if len(values) > 1 else "1 run:"
    said = f"{runs} {values[-1]:,.6g}; {sum(broken)} beyond the limit"
    return Svg(
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{said}"><title>{said}</title>'
        f'<line x1="0" x2="{WIDTH}" y1="{level}" y2="{level}" class="limit"/>'
        f'<polyline points="{" ".join(f"{x},{y}" for x, y in points)}"/>{dots}</svg>'
    )
