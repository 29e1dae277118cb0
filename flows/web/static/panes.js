// A pane with the translation of one version. Each sentence can be chosen. Text is only ever set as text, never as HTML.

import { differences } from "./diff.js";

export class TranslationPane {
  constructor(out, name, choose) {
    Object.assign(this, { out, name, choose, model: "", cells: new Map() });
  }

  // Make an empty element for each sentence of each paragraph.
  begin(plan, language, title) {
    this.model = plan.model;
    this.name.textContent = title;
    this.out.lang = language;
    this.cells = new Map();
    this.out.replaceChildren(
      ...plan.paragraphs.map((sentences, p) => {
        const paragraph = document.createElement("p");
        sentences.forEach((_, s) => paragraph.append(this.addCell(p, s), " "));
        return paragraph;
      }),
    );
  }

  addCell(paragraph, sentence) {
    const span = document.createElement("span");
    span.className = "sentence waits";
    span.textContent = "…";
    this.cells.set(`${paragraph}.${sentence}`, { span });
    return span;
  }

  fill(message) {
    const key = `${message.paragraph}.${message.sentence}`;
    const cell = this.cells.get(key);
    const { span } = cell;
    cell.translated = message.translated;
    span.classList.remove("waits");
    span.textContent = message.translated.hypotheses[0].text || "∅";
    span.setAttribute("role", "button");
    span.setAttribute("aria-pressed", "false");
    span.tabIndex = 0;
    span.addEventListener("click", () => this.choose(this, key));
    span.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.choose(this, key);
    });
  }

  highlight(key) {
    for (const [each, { span, translated }] of this.cells) {
      if (translated) span.setAttribute("aria-pressed", `${each === key}`);
    }
  }

  clear() {
    this.model = "";
    this.name.textContent = "Translation";
    this.cells = new Map();
    this.out.replaceChildren();
  }
}

// Mark the words in which two translations of a sentence differ.
export function compare(one, other, key) {
  const [a, b] = [one.cells.get(key), other.cells.get(key)];
  if (!a?.translated || !b?.translated) return;
  const texts = [a, b].map(({ translated }) => translated.hypotheses[0].text || "∅");
  differences(...texts).forEach((runs, side) => {
    const parts = runs.flatMap(([text, same], n) => {
      const part = document.createElement(same ? "span" : "mark");
      part.textContent = text;
      return n ? [" ", part] : [part];
    });
    [a, b][side].span.replaceChildren(...parts);
  });
}
