// One sentence looked into: its hypotheses, its pieces, and what each looks at, by layer and head or on average.

import { attention, pictureAddress } from "./talk.js";

const at = (id) => document.getElementById(id);
const NAMES = {
  cross: ["Pieces of the translation: choose one to see what it looks at", "Pieces of the source"],
  encoder: ["Pieces of the source: choose one to see what it looks at", "Pieces of the source"],
  decoder: ["Pieces of the translation: choose one to see what it looks at", "What is written before it"],
};
const MOST_NAMED = 3;

export class AttentionView {
  constructor(trouble, changed) {
    Object.assign(this, { trouble, changed, view: { kind: "cross", layer: 0, head: 0, hypothesis: 0 }, row: 0 });
    for (const id of ["kind", "layer", "head"]) {
      at(id).addEventListener("change", () => {
        this.view[id] = id === "kind" ? at(id).value : Number(at(id).value);
        changed();
        if (id === "kind") this.ask();
        else this.draw();
      });
    }
    at("rows").addEventListener("keydown", (event) => this.step(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  close() {
    this.asking?.abort();
    this.translated = undefined;
    at("inside").hidden = true;
  }

  open(model, translated) {
    this.model = model;
    this.translated = translated;
    if (!translated.hypotheses[this.view.hypothesis]) this.view.hypothesis = 0;
    at("inside-name").textContent = `Inside: “${translated.source}”`;
    this.list();
    at("inside").hidden = false;
    return this.ask();
  }

  list() {
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
          this.ask();
        });
        item.append(button);
        return item;
      }),
    );
  }

  get question() {
    const { ids } = this.translated.hypotheses[this.view.hypothesis];
    return { model: this.model, source: this.translated.source, ids, kind: this.view.kind };
  }

  async ask() {
    if (!this.translated) return;
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    try {
      const found = await attention(this.question, signal);
      if (signal.aborted) return;
      this.found = found;
    } catch (error) {
      if (error.name !== "AbortError") this.trouble(error.message);
      return;
    }
    this.row = Math.min(this.row, this.found.rows.length - 1);
    const focused = at("rows").contains(document.activeElement);
    this.offer();
    this.draw();
    if (focused) at("rows").children[this.row].focus(); // what had the focus has been replaced
  }

  offer() {
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
        for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, () => this.look(row));
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
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const address = pictureAddress({ ...this.question, layer, head, dark });
    const where = [layer ? `layer ${layer}` : "mean of all layers", head ? `head ${head}` : "mean of all heads"];
    at("map").src = address;
    at("map").alt = `Map of attention, ${at("kind").selectedOptions[0].text}, ${where.join(", ")}`;
    at("save").href = address;
    this.look(this.row);
  }

  // Weights of a row, averaged where a mean is asked for.
  weights(row) {
    const { layer, head } = this.view;
    const layers = layer ? [this.found.weights[layer - 1]] : this.found.weights;
    const maps = layers.flatMap((heads) => (head ? [heads[head - 1]] : heads));
    return this.found.columns.map((_, column) => maps.reduce((sum, map) => sum + map[row][column], 0) / maps.length);
  }

  look(row) {
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
    const named = order.filter(([weight], place) => !place || weight >= 0.01).slice(0, MOST_NAMED).map(([weight, piece]) => `${piece} ${Math.round(100 * weight)} %`);
    at("looks").textContent = `${this.found.rows[row]} looks at ${named.join(", ")}`;
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
