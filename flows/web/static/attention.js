// The attention view of one sentence: its hypotheses, its tokens and the weights of each, by layer and head or as a mean.

import { attention } from "./api.js";
import { drawHeatMap } from "./heat_map.js";

const at = (id) => document.getElementById(id);
const NAMES = {
  cross: ["Tokens of the translation: choose one to see what it attends to", "Tokens of the source"],
  encoder: ["Tokens of the source: choose one to see what it attends to", "Tokens of the source"],
  decoder: ["Tokens of the translation: choose one to see what it attends to", "Tokens before it"],
};
const MAX_LISTED = 3;

export class AttentionView {
  constructor(showError, changed) {
    Object.assign(this, { showError, changed, view: { kind: "cross", layer: 0, head: 0, hypothesis: 0 }, row: 0 });
    for (const id of ["kind", "layer", "head"]) {
      at(id).addEventListener("change", () => {
        this.view[id] = id === "kind" ? at(id).value : Number(at(id).value);
        changed();
        if (id === "kind") this.load();
        else this.draw();
      });
    }
    at("rows").addEventListener("keydown", (event) => this.step(event));
    at("save").addEventListener("click", () => {
      const link = Object.assign(document.createElement("a"), { download: "attention.png", href: at("map").toDataURL() });
      link.click();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  close() {
    this.loading?.abort();
    this.translated = undefined;
    at("inside").hidden = true;
  }

  open(model, translated) {
    this.model = model;
    this.translated = translated;
    if (!translated.hypotheses[this.view.hypothesis]) this.view.hypothesis = 0;
    at("inside-name").textContent = `Inside: “${translated.source}”`;
    this.listHypotheses();
    at("inside").hidden = false;
    return this.load();
  }

  listHypotheses() {
    at("hypotheses").replaceChildren(
      ...this.translated.hypotheses.map((each, number) => {
        const [item, button, text, numbers] = ["li", "button", "span", "small"].map((tag) => document.createElement(tag));
        button.type = "button";
        button.setAttribute("aria-pressed", `${number === this.view.hypothesis}`);
        text.textContent = each.text || "∅";
        numbers.textContent = `score ${each.score.toFixed(3)} · log p ${each.log_probability.toFixed(2)}`;
        if (!each.finished) numbers.textContent += " · cut";
        button.append(text, numbers);
        button.addEventListener("click", () => {
          this.view.hypothesis = number;
          for (const other of at("hypotheses").querySelectorAll("button")) {
            other.setAttribute("aria-pressed", `${other === button}`);
          }
          this.changed();
          this.load();
        });
        item.append(button);
        return item;
      }),
    );
  }

  get request() {
    const { ids } = this.translated.hypotheses[this.view.hypothesis];
    return { model: this.model, source: this.translated.source, ids, kind: this.view.kind };
  }

  async load() {
    if (!this.translated) return;
    this.loading?.abort();
    this.loading = new AbortController();
    const { signal } = this.loading;
    try {
      const found = await attention(this.request, signal);
      if (signal.aborted) return;
      this.found = found;
    } catch (error) {
      if (error.name !== "AbortError") this.clear(error.message);
      return;
    }
    if (this.failed) this.showError("");
    this.failed = false;
    this.row = Math.min(this.row, this.found.rows.length - 1);
    const focused = at("rows").contains(document.activeElement);
    this.fillControls();
    this.draw();
    if (focused) at("rows").children[this.row].focus(); // the element that had the focus has been replaced
  }

  clear(trouble) {
    this.showError(trouble);
    this.failed = true;
    this.found = undefined;
    for (const id of ["rows", "columns", "looks"]) at(id).replaceChildren();
    at("map").width = 0;
  }

  fillControls() {
    const { weights } = this.found;
    for (const [id, count] of [["layer", weights.length], ["head", weights[0].length]]) {
      this.view[id] = Math.min(this.view[id], count);
      at(id).replaceChildren(
        ...Array.from({ length: count + 1 }, (_, number) => new Option(number ? `${number}` : "mean of all", number)),
      );
      at(id).value = `${this.view[id]}`;
    }
    at("kind").value = this.view.kind;
    [at("rows-name").textContent, at("columns-name").textContent] = NAMES[this.view.kind];
    at("rows").replaceChildren(
      ...this.found.rows.map((piece, row) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "piece";
        button.textContent = piece;
        button.setAttribute("role", "radio");
        for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, () => this.select(row));
        return button;
      }),
    );
    at("columns").replaceChildren(
      ...this.found.columns.map((piece) => {
        const span = document.createElement("span");
        span.className = "piece";
        span.textContent = piece;
        span.setAttribute("role", "listitem");
        return span;
      }),
    );
  }

  draw() {
    if (!this.translated || !this.found) return;
    const { layer, head } = this.view;
    const where = [layer ? `layer ${layer}` : "mean of all layers", head ? `head ${head}` : "mean of all heads"];
    const title = `${at("kind").selectedOptions[0].text}, ${where.join(", ")} · ${this.model}`;
    at("map").setAttribute("aria-label", `Heat map of attention, ${title}`);
    drawHeatMap(at("map"), this.found, this.found.rows.map((_, row) => this.weights(row)), title);
    this.select(this.row);
  }

  // The weights of a row; without a layer or head their mean.
  weights(row) {
    const { layer, head } = this.view;
    const layers = layer ? [this.found.weights[layer - 1]] : this.found.weights;
    const maps = layers.flatMap((heads) => (head ? [heads[head - 1]] : heads));
    return this.found.columns.map((_, column) => maps.reduce((sum, map) => sum + map[row][column], 0) / maps.length);
  }

  select(row) {
    this.row = row;
    const weights = this.weights(row);
    [...at("rows").children].forEach((button, number) => {
      button.setAttribute("aria-checked", `${number === row}`);
      button.tabIndex = number === row ? 0 : -1;
    });
    [...at("columns").children].forEach((span, column) => {
      span.style.setProperty("--weight", weights[column].toFixed(3));
      span.title = `${(100 * weights[column]).toFixed(1)} %`;
    });
    const order = weights.map((weight, column) => [weight, this.found.columns[column]]).sort((a, b) => b[0] - a[0]);
    const listed = order.filter(([weight], rank) => !rank || weight >= 0.01).slice(0, MAX_LISTED).map(([weight, piece]) => `${piece} ${Math.round(100 * weight)} %`);
    at("looks").textContent = `${this.found.rows[row]} attends to ${listed.join(", ")}`;
  }

  step(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const count = this.found.rows.length;
    let row = (this.row + (steps[event.key] || 0) + count) % count;
    if (event.key === "Home") row = 0;
    else if (event.key === "End") row = count - 1;
    else if (!steps[event.key]) return;
    event.preventDefault();
    at("rows").children[row].focus();
  }
}
