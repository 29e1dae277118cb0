// Translations on the page, sentence by sentence, each of which can be chosen. Text is only ever set as text.

import { differences } from "./words.js";

export class TranslationPane {
  constructor(out, name, choose) {
    Object.assign(this, { out, name, choose, model: "", places: new Map() });
  }

  // An empty place for each sentence of each paragraph.
  begin(plan, language) {
    this.model = plan.model;
    this.name.textContent = plan.model;
    this.out.lang = language;
    this.places = new Map();
    this.out.replaceChildren(
      ...plan.paragraphs.map((sentences, p) => {
        const paragraph = document.createElement("p");
        sentences.forEach((_, s) => paragraph.append(this.place(p, s), " "));
        return paragraph;
      }),
    );
  }

  place(paragraph, sentence) {
    const span = document.createElement("span");
    span.className = "sentence waits";
    span.textContent = "…";
    this.places.set(`${paragraph}.${sentence}`, { span });
    return span;
  }

  fill(message) {
    const key = `${message.paragraph}.${message.sentence}`;
    const place = this.places.get(key);
    const { span } = place;
    place.translated = message.translated;
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

  mark(key) {
    for (const [own, { span, translated }] of this.places) {
      if (translated) span.setAttribute("aria-pressed", `${own === key}`);
    }
  }

  clear() {
    this.model = "";
    this.name.textContent = "Translation";
    this.places = new Map();
    this.out.replaceChildren();
  }
}

// Mark the words that two translations of a sentence do not share.
export function compare(one, other, key) {
  const [a, b] = [one.places.get(key), other.places.get(key)];
  if (!a?.translated || !b?.translated) return;
  const texts = [a, b].map(({ translated }) => translated.hypotheses[0].text);
  differences(...texts).forEach((runs, side) => {
    const parts = runs.flatMap(([text, same], n) => {
      const part = document.createElement(same ? "span" : "mark");
      part.textContent = text;
      return n ? [" ", part] : [part];
    });
    [a, b][side].span.replaceChildren(...parts);
  });
}
