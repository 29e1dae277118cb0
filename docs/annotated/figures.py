"""Draw the figures of docs/annotated/ as SVG files in docs/annotated/figures/.

    python docs/annotated/figures.py                      all figures, from the numbers in docs/annotated/data/
    python docs/annotated/figures.py beam smoothing       these alone
    python docs/annotated/figures.py --from demo/1        first the numbers again, from that registered version

Without ``--from`` nothing is computed: no model, no training. The root is that of ``REPRO_ROOT``, by default the
nearest ``.repro``; ``repro run demo`` registers demo/1. The numbers of ``collapse`` and ``ablations`` come from
trainings of their own (docs/annotated/ablations.py), which ``--from`` does not repeat.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from svg import WIDTH, Axes, Sheet  # noqa: E402

DATA = HERE / "data"
FIGURES = HERE / "figures"
LABELS = 78
"""Width of the names of pieces to the left of a matrix."""
OVER = 46
"""Height of the names of pieces above a matrix."""
Numbers = dict[str, Any]


def positions(data: Numbers) -> Sheet:
    """The matrix of positions, and the dot products of its rows."""
    encoding = data["encoding"]
    products = data["products"]
    sheet = Sheet("Positional encoding: its matrix, and the dot product of every two positions")
    sheet.heading("PE: a row for each position", "blue: above 0; orange: below; left: the fastest waves")
    left = 26
    wide = (WIDTH - left - 2) / len(encoding[0])
    sheet.heat(encoding, left, sheet.y, wide, 4)
    for row in range(0, len(encoding) + 1, 10):
        sheet.words(left - 4, sheet.y + 4 * min(row, len(encoding) - 1) + 5, f"{row}", "muted small", "end")
    sheet.y += 4 * len(encoding)
    for column in (0, 32, 64, 96):
        sheet.words(left + wide * column, sheet.y + 14, f"{column}", "muted small")
    sheet.words(WIDTH - 2, sheet.y + 14, "column", "muted small", "end")
    sheet.y += 34
    sheet.heading("PE(p) · PE(q): near positions are alike", f"the diagonal is d_model / 2 = {products[0][0]:.0f}")
    cell = 7
    left = (WIDTH - cell * len(products)) / 2
    sheet.heat(products, left, sheet.y, cell, cell)
    for row in range(0, len(products), 10):
        sheet.words(left - 4, sheet.y + cell * (row + 0.5) + 4, f"{row}", "muted small", "end")
        sheet.words(left + cell * (row + 0.5), sheet.y + cell * len(products) + 14, f"{row}", "muted small", "middle")
    sheet.y += cell * len(products) + 18
    return sheet


def masks(data: Numbers) -> Sheet:
    """What each of the three masks lets a query see, for a pair that is padded to the length of another."""
    sheet = Sheet("The three masks of a padded pair: encoder, decoder and cross-attention")
    cell = 17
    for each in data["masks"]:
        sheet.heading(each["name"], each["remark"])
        sheet.y += OVER
        sheet.table(each["visible"], each["queries"], each["keys"], LABELS, sheet.y, cell)
        right = LABELS + cell * len(each["keys"])
        below = sheet.y + cell * len(each["queries"])
        for line in range(1, len(each["keys"])):
            sheet.path([(LABELS + cell * line, sheet.y), (LABELS + cell * line, below)], "line thin")
        for line in range(1, len(each["queries"])):
            sheet.path([(LABELS, sheet.y + cell * line), (right, sheet.y + cell * line)], "line thin")
        sheet.y = below + 20
    return sheet


def qkv(data: Numbers) -> Sheet:
    """Queries, keys and values of one head, then its scores and weights."""
    sheet = Sheet(f"Queries, keys and values of one head over “{data['sentence']}”")
    for name, meaning in (("Q", "what each piece looks for"), ("K", "what it offers"), ("V", "what it hands over")):
        values = data[name]
        largest = max(abs(value) for row in values for value in row)
        sheet.heading(f"{name}: {meaning}", f"{len(values)} × {len(values[0])}, largest magnitude {largest:.1f}")
        sheet.heat(values, LABELS, sheet.y, (WIDTH - LABELS - 2) / len(values[0]), 13)
        for row, piece in enumerate(data["pieces"]):
            sheet.words(LABELS - 4, sheet.y + 13 * row + 10.5, piece, "small", "end")
        sheet.y += 13 * len(values) + 14
    sheet.heading("Q Kᵀ / √d_k: scores", "a row for each query, a column for each key")
    _square(sheet, data["scores"], data["pieces"])
    sheet.heading("softmax of each row: weights", "each row sums to 1")
    _square(sheet, data["weights"], data["pieces"], 1)
    return sheet


def _square(sheet: Sheet, values: list[list[float]], pieces: list[str], most: float = 0) -> None:
    cell = min(20, (WIDTH - LABELS - 30) / len(pieces))
    sheet.y += OVER
    sheet.table(values, pieces, pieces, LABELS, sheet.y, cell, most)
    sheet.y += cell * len(pieces) + 18


def attention(data: Numbers) -> Sheet:
    """Each head of each layer of one kind of attention."""
    sheet = Sheet(f"{data['name']} over “{data['sentence']}”, each head of each layer")
    half = WIDTH / 2
    names = 8 + 6.2 * max(len(piece) for piece in data["queries"])
    cell = min(14, (half - names - 20) / len(data["keys"]))
    for number, layer in enumerate(data["weights"], start=1):
        sheet.heading(f"Layer {number}", data["remark"] if number == 1 else "")
        for head, weights in enumerate(layer, start=1):
            left = 0 if head % 2 else half
            sheet.words(left, sheet.y + 12, f"head {head}", "muted")
            sheet.table(weights, data["queries"], data["keys"], left + names, sheet.y + OVER, cell, 1)
            if head % 2 == 0 or head == len(layer):
                sheet.y += OVER + cell * len(data["queries"]) + 14
        sheet.y += 6
    return sheet


def smoothing(data: Numbers) -> Sheet:
    """The distribution that the loss asks for without and with smoothing, and the one that the model gives."""
    sheet = Sheet(f"The piece after “{data['written']}”: hard target, smoothed target and prediction")
    sheet.heading(f"The piece after “{data['written']}”", f"source: {data['source']}")
    kinds = [("hard", "hard target", "muted"), ("smoothed", "smoothed target", "minus"), ("model", "model", "plus")]
    place = 0.0
    for _, name, kind in kinds:
        sheet.box(place, sheet.y + 2, 10, 10, kind)
        sheet.words(place + 14, sheet.y + 11, name, "muted")
        place += 40 + 6.3 * len(name)
    sheet.y += 24
    left = 92
    wide = WIDTH - left - 56
    for row, piece in enumerate(data["pieces"]):
        sheet.words(left - 6, sheet.y + 20, piece, "bold" if row == 0 else "", "end")
        for key, _, kind in kinds:
            value = data[key][row]
            sheet.box(left, sheet.y, max(wide * value, 0.6), 9, kind)
            sheet.words(left + wide * value + 5, sheet.y + 8.5, share(value), "muted small")
            sheet.y += 11
        sheet.y += 7
    return sheet


def share(value: float) -> str:
    """A probability with as many digits as it needs to be seen."""
    if value in (0, 1):
        return f"{value:.0f}"
    return f"{value:.3f}" if value >= 0.001 else f"{value:.5f}"


def schedule(data: Numbers) -> Sheet:
    """The learning rate against the step."""
    sheet = Sheet(
        "The learning rate of the paper: it rises over the warm-up, then falls as one over the root of the step"
    )
    sheet.heading("Learning rate", "× 10⁻³; dots: the end of the warm-up")
    most = max(rate for curve in data["curves"] for _, rate in curve["points"]) * 1e3
    last = data["curves"][0]["points"][-1][0]
    axes = Axes(sheet, (30, sheet.y + 4, WIDTH - 50, 170), (0, last), (0, most * 1.08))
    axes.scale_y([(tick, f"{tick:g}") for tick in (0, 0.2, 0.4, 0.6, 0.8, 1.0) if tick <= most * 1.08])
    axes.scale_x([(tick, f"{tick:,}") for tick in range(0, last + 1, 5000)], "step")
    sheet.y = axes.top + axes.height + 42
    for curve, kind in zip(data["curves"], ("plus", "minus", "dashed"), strict=True):
        points = [(step, rate * 1e3) for step, rate in curve["points"]]
        axes.curve(points, kind)
        peak = curve["d_model"] ** -0.5 * curve["warmup"] ** -0.5 * 1e3
        sheet.dot(axes.x(curve["warmup"]), axes.y(peak), 3.5, kind.replace("dashed", "ink"))
        sheet.path([(30, sheet.y), (58, sheet.y)], f"curve {kind}")
        text = f"d_model {curve['d_model']}, warm-up {curve['warmup']:,}: at most {peak:.2f}"
        sheet.words(66, sheet.y + 4, text)
        sheet.y += 18
    return sheet


def beam(data: Numbers) -> Sheet:
    """A beam search as a tree that grows downwards, a row for each step."""
    sheet = Sheet(f"Beam search for “{data['source']}”, step by step")
    sheet.heading(f"Beam of {data['beam']}, α = {data['alpha']}", f"source: {data['source']}")
    sheet.words(0, sheet.y + 10, "log P below each piece; bold: the prefixes of the answer", "muted")
    sheet.words(0, sheet.y + 26, "boxes have ended: log P ÷ ((5 + |Y|) / 6)^α", "muted")
    sheet.y += 52
    column = WIDTH / max(len(step) for step in data["steps"])
    above = [(WIDTH / 2, sheet.y)]
    sheet.words(WIDTH / 2, sheet.y - 4, "<s>", "bold", "middle")
    for step in data["steps"]:
        left = (WIDTH - column * len(step)) / 2
        live = []
        for rank, node in enumerate(step):
            x = left + column * (rank + 0.5)
            y = sheet.y + 38
            came = above[node["parent"]]
            kind = "curve plus" if node["best"] else "line"
            sheet.path([(came[0], came[1] + 4), (x, y - 13)], kind)
            sheet.words(x, y, node["piece"], "small bold" if node["best"] else "small", "middle")
            if node["ended"]:
                sheet.box(x - column / 2 + 2, y - 12, column - 4, 29, "curve plus" if node["best"] else "line")
                below = f"{node['log_p']:.2f} → {node['score']:.2f}" if column > 85 else f"{node['score']:.2f}"
            else:
                below = f"{node['log_p']:.2f}"
                live.append((x, y + 13))
            sheet.words(x, y + 12, below, "muted small", "middle")
        above = live
        sheet.y += 56
    sheet.y += 8
    return sheet


def collapse(data: Numbers) -> Sheet:
    """How alike the positions of a sentence are after each layer, post-LN beside pre-LN."""
    sheet = Sheet("Mean cosine between two positions of a sentence after each encoder layer, post-LN beside pre-LN")
    settings = f"{data['layers']} layers, {data['updates']} updates at a rate of up to {data['peak']:.4f}, one seed"
    sheet.heading("Cosine between positions", settings)
    axes = Axes(sheet, (32, sheet.y + 6, WIDTH - 44, 180), (0, data["layers"]), (0, 1))
    axes.scale_y([(tick / 4, f"{tick / 4:g}") for tick in range(5)])
    axes.scale_x([(layer, f"{layer}") for layer in range(data["layers"] + 1)], "after layer (0: the embeddings)")
    sheet.y = axes.top + axes.height + 44
    for curve in data["curves"]:
        kind = ("minus" if curve["norm"] == "post" else "plus") + ("" if curve["trained"] else " thin dashed")
        axes.curve(list(enumerate(curve["cosine"])), kind)
        sheet.path([(32, sheet.y), (60, sheet.y)], f"curve {kind}")
        when = f"trained: dev perplexity {curve['perplexity']:,.1f}" if curve["trained"] else "before training"
        sheet.words(68, sheet.y + 4, f"{curve['norm']}-LN, {when}")
        sheet.y += 18
    return sheet


def ablations(data: Numbers) -> Sheet:
    """What each part of the recipe is worth: BLEU and loss on the dev set without it."""
    sheet = Sheet("BLEU and loss on the dev set without each part of the recipe, less those with all of them")
    remark = f"mean of {len(data['seeds'])} seeds, 95 % t-interval; dots: the seeds"
    sheet.heading("BLEU without it − BLEU with all", remark)
    _differences(sheet, data["bleu"], (1, 2, 5, 10, 20, 50), 1, _with_all("BLEU", data["base"]["bleu"], 1))
    sheet.heading("Loss without it − loss with all", "nats per piece: above 0 the part is worth something")
    _differences(sheet, data["nats"], (0.1, 0.2, 0.5, 1, 2, 5), 2, _with_all("loss", data["base"]["nats"], 2))
    sheet.words(0, sheet.y, data["about"], "muted")
    sheet.y += 6
    return sheet


def _with_all(name: str, values: list[float], digits: int) -> str:
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"with all: {name} {sum(values) / len(values):.{digits}f} ({each})"


def _differences(sheet: Sheet, rows: list[Numbers], steps: tuple[float, ...], digits: int, below: str) -> None:
    """A row for each part: its name, the mean with its interval in words and as a line, and a dot for each seed."""
    reached = [0, *(value for each in rows for value in (each["low"], each["high"], *each["difference"]))]
    pad = (max(reached) - min(reached)) * 0.05
    height = 36
    frame = (4.0, sheet.y, WIDTH - 8.0, height * len(rows))
    axes = Axes(sheet, frame, (min(reached) - pad, max(reached) + pad), (0, 1))
    low, high = axes.x_range
    step = next(each for each in steps if (high - low) / each < 8)
    ticks = [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]
    axes.scale_x([(tick, f"{tick:+g}" if tick else "0") for tick in ticks], below)
    for number, each in enumerate(rows):
        y = axes.top + height * number
        mean, least, most = (f"{each[key]:+.{digits}f}" for key in ("mean", "low", "high"))
        sheet.words(4, y + 12, f"without {each['name']}", "bold")
        sheet.words(WIDTH - 4, y + 12, f"{mean} [{least}, {most}]", "muted small", "end")
        sheet.path([(axes.x(0), y + 16), (axes.x(0), y + 32)])
        sheet.path([(axes.x(each[end]), y + 24) for end in ("low", "high")], "curve plus")
        sheet.box(axes.x(each["mean"]) - 2, y + 18, 4, 12, "plus")
        for value in each["difference"]:
            sheet.dot(axes.x(value), y + 24, 2.6, "minus")
    sheet.y = axes.top + axes.height + 50


DRAW: dict[str, Callable[[Numbers], Sheet]] = {
    "positions": positions,
    "masks": masks,
    "qkv": qkv,
    "attention-encoder": attention,
    "attention-decoder": attention,
    "attention-cross": attention,
    "smoothing": smoothing,
    "schedule": schedule,
    "beam": beam,
    "collapse": collapse,
    "ablations": ablations,
}
"""The figures by name: what draws them from ``data/NAME.json``."""


def read(name: str) -> Numbers:
    """The numbers of a figure."""
    numbers: Numbers = json.loads((DATA / f"{name}.json").read_text())
    return numbers


def write(name: str, numbers: Numbers) -> None:
    """Write the numbers of a figure, a line for each of their names."""
    lines = (f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in numbers.items())
    (DATA / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    """Read the command line and draw."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("names", nargs="*", metavar="NAME", help=f"figures, by default all: {', '.join(DRAW)}")
    flags.add_argument("--from", dest="version", metavar="VERSION", help="a registered version, as demo/1")
    chosen = flags.parse_args()
    names = chosen.names or [name for name in DRAW if chosen.version or (DATA / f"{name}.json").exists()]
    if unknown := [name for name in names if name not in DRAW]:
        flags.error(f"NAME is {unknown[0]!r}, allowed is {', '.join(DRAW)}")
    if chosen.version:
        from figure_numbers import numbers_from

        for name, numbers in numbers_from(chosen.version).items():
            if name in names:
                write(name, numbers)
    for name in names:
        drawn = DRAW[name](read(name)).svg()
        (FIGURES / f"{name}.svg").write_text(drawn)
        print(f"docs/annotated/figures/{name}.svg  {len(drawn.encode()):,} bytes")


if __name__ == "__main__":
    main()
