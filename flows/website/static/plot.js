// Plots of numbers by uPlot: choice of the measure, zoom by dragging, and a picture to save.
"use strict";

const HEIGHT = 320, COLOURS = 4;

function colour(name) {
  // The value of a custom property as the browser resolves it for the theme in force.
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const withOpacity = (found, opacity) => found.replace("rgb(", "rgba(").replace(")", `, ${opacity})`);

function shorten(value) {
  if (value == null) return "–";
  return Math.abs(value) >= 1000 ? value.toLocaleString("en") : `${+value.toPrecision(4)}`;
}

// Places of values without a neighbour, through which no line goes.
function single(values) {
  return values.flatMap((value, at) => (value != null && values[at - 1] == null && values[at + 1] == null ? [at] : []));
}

class Plot {
  constructor(element, data) {
    this.canvas = element.querySelector(".canvas");
    this.choice = element.querySelector(".measure");
    this.choice.addEventListener("change", () => this.draw());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    element.querySelector(".whole").addEventListener("click", () => this.draw());
    element.querySelector(".save").addEventListener("click", () => this.save());
    document.addEventListener("theme", () => this.draw());
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(element);
    this.change(data);
  }

  change(data) {
    const chosen = this.choice.value;
    this.data = data;
    this.choice.replaceChildren(...data.measures.map((measure) => new Option(measure.name)));
    if (data.measures.some((measure) => measure.name === chosen)) this.choice.value = chosen;
    this.draw();
  }

  get measure() { return this.data.measures[this.choice.selectedIndex]; }

  size() { return { width: Math.max(240, this.canvas.clientWidth), height: HEIGHT }; }

  draw() {
    this.plot?.destroy();
    if (!this.measure) return;
    const spanGaps = !this.data.breaks; // rows of a training's log have some measures only at times
    const columns = [this.data.x], series = [{ label: this.data.xLabel, value: (_, found) => shorten(found) }], bands = [], edges = {};
    this.measure.series.forEach((each, number) => {
      const stroke = colour(`--series-${number % COLOURS + 1}`);
      const filter = (_, __, shown) => (shown || spanGaps ? null : single(each.values));
      const found = each.values.filter((value) => value != null).length;
      const points = { show: found <= 60, size: 7, fill: stroke, filter };
      const interval = (at) => (each.low?.[at] == null ? "" : ` (${shorten(each.low[at])}–${shorten(each.high[at])})`);
      const value = (_, found, __, at) => shorten(found) + (at == null ? "" : interval(at));
      columns.push(each.values);
      series.push({ label: each.name, stroke, width: 2, points, spanGaps, value });
      if (!each.low) return;
      const edge = { stroke: "transparent", points: { show: false }, spanGaps, class: "edge" };
      edges[columns.length - 1] = [columns.length, columns.length + 1];
      bands.push({ series: [columns.length, columns.length + 1], fill: withOpacity(stroke, 0.15) });
      columns.push(each.high, each.low);
      series.push(edge, edge);
    });
    const lines = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--muted"), grid: lines, ticks: lines, values: (_, splits) => splits.map((split) => (split == null ? "" : shorten(split))) };
    const steps = [1, 2, 5].flatMap((step) => [step, 10 * step, 100 * step, 1e3 * step, 1e4 * step, 1e5 * step]);
    const showEdges = (plot, number, change) => {
      if (!("show" in change)) return;
      (edges[number] ?? []).forEach((edge) => plot.setSeries(edge, { show: change.show }));
      this.legendButtons(plot)[number]?.setAttribute("aria-pressed", `${change.show}`);
    };
    const options = {
      ...this.size(), series, bands,
      scales: {
        x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) },
        y: this.measure.log ? { distr: 3 } : {},
      },
      axes: [{ ...axis, incrs: steps.sort((a, b) => a - b) }, { ...axis, size: 64 }],
      cursor: { drag: { x: true, y: false } },
      hooks: { setSeries: [showEdges] },
    };
    this.plot = new uPlot(options, columns, this.canvas);
    this.makeLegendButtons();
  }

  legendRows(plot) { return [...plot.root.querySelectorAll(".u-legend .u-series")]; }

  legendButtons(plot) { return this.legendRows(plot).map((row) => row.querySelector("button")); }

  // The legend's names show and hide a series; uPlot makes them for the mouse alone.
  makeLegendButtons() {
    this.legendRows(this.plot).slice(1).forEach((row) => {
      if (row.classList.contains("edge")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.append(...row.firstChild.childNodes);
      row.firstChild.append(button); // uPlot listens to the cell's clicks
    });
  }

  key(event) {
    if (event.target !== this.canvas || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (step) this.moveCursor(step);
    else if (factor) this.zoom(factor);
    else if (event.key === "Escape") this.draw();
    else return;
    event.preventDefault();
  }

  moveCursor(step) {
    const plot = this.plot, x = this.data.x, last = x.length - 1;
    const at = Math.min(last, Math.max(0, (plot.cursor.idx ?? (step > 0 ? -1 : last + 1)) + step));
    const { min, max } = plot.scales.x, moved = Math.min(0, x[at] - min) + Math.max(0, x[at] - max);
    if (moved) plot.setScale("x", { min: min + moved, max: max + moved });
    plot.setCursor({ left: plot.valToPos(x[at], "x"), top: 0 });
  }

  // Keep the cursor's place, else the middle, where it is.
  zoom(factor) {
    const plot = this.plot, x = this.data.x, { min, max } = plot.scales.x, at = plot.cursor.idx;
    const fixed = at == null ? (min + max) / 2 : x[at];
    const low = Math.max(x[0], fixed - (fixed - min) * factor), high = Math.min(x.at(-1), fixed + (max - fixed) * factor);
    if (low < high) plot.setScale("x", { min: low, max: high });
  }

  save() {
    const source = this.plot.ctx.canvas, ratio = devicePixelRatio, margin = 12 * ratio, line = 22 * ratio;
    const picture = document.createElement("canvas");
    picture.width = source.width + 2 * margin;
    picture.height = source.height + 2 * margin + 2 * line;
    const context = picture.getContext("2d");
    context.fillStyle = colour("--card");
    context.fillRect(0, 0, picture.width, picture.height);
    context.fillStyle = colour("--ink");
    context.font = `600 ${15 * ratio}px system-ui, sans-serif`;
    context.fillText(`${this.data.label}: ${this.measure.name}`, margin, margin + line * 0.7);
    context.font = `${13 * ratio}px system-ui, sans-serif`;
    let left = margin;
    this.measure.series.forEach((each, number) => {
      context.fillStyle = colour(`--series-${number % COLOURS + 1}`);
      context.fillText(`■ ${each.name}`, left, margin + line * 1.7);
      left += context.measureText(`■ ${each.name}`).width + 16 * ratio;
    });
    context.drawImage(source, margin, margin + 2 * line);
    picture.toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = `${this.data.label}-${this.measure.name}.png`.replace(/[^\w.-]+/g, "-");
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    });
  }
}

// Data of a version's own page comes from its file, that of other plots is in the page.
const plots = [...document.querySelectorAll(".plot[data-of], .plot:has(script)")].map((element) => {
  const version = versionData[element.dataset.of];
  return new Plot(element, version ? version.curves : JSON.parse(element.querySelector("script").textContent));
});
