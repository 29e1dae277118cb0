// The page: settings, requests and results, and the link that restores the same view.

import { AttentionView } from "./attention.js";
import { compare, TranslationPane } from "./panes.js";
import { models, translate } from "./api.js";

const at = (id) => document.getElementById(id);
// Searches of the same version that can stand beside the chosen one. No version has such a name.
const BESIDE = { "@beam": "this version, as scored", "@greedy": "this version, greedy" };
const BEAMS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16];

let known = [];
let running;
let chosen = { side: 0, key: "" };
const sides = [0, 1].map((side) => new TranslationPane(at(`out-${side}`), at(`name-${side}`), (_, key) => choose(side, key)));
const attentionView = new AttentionView(showError, saveView);

function showError(text) {
  at("trouble").textContent = text;
}

function cardOf(name) {
  const model = name.split(/[/@]/)[0];
  return known.find((card) => card.name === name || card.aliases.some((alias) => `${model}@${alias}` === name && card.name.startsWith(`${model}/`)));
}

function language(code) {
  if (!code) return "";
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}

function setOptions(select, options, value) {
  select.replaceChildren(...options.map(([key, text]) => new Option(text, key)));
  select.value = value;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}

// Update everything that depends on the version: languages, default search, limits.
function updateOptions() {
  const card = cardOf(at("model").value);
  const pair = [card.source_language, card.target_language].map(language).filter(Boolean);
  at("languages").textContent = pair.join(" to ");
  at("text").lang = card.source_language;
  const beams = [...new Set([...BEAMS.filter((beam) => beam <= card.limits.beam), card.beam])].sort((a, b) => a - b);
  const standard = `as scored: ${card.beam === 1 ? "greedy" : `beam ${card.beam}`}`;
  setOptions(at("beam"), [["", standard], ...beams.map((beam) => [beam, beam === 1 ? "greedy" : `beam ${beam}`])], at("beam").value);
  at("nbest").max = card.limits.nbest;
  at("alpha").placeholder = `${card.alpha}`;
  const others = known.filter((other) => other !== card);
  setOptions(at("beside"), [["", "nothing"], ...Object.entries(BESIDE), ...others.map((other) => [other.name, titled(other)])], at("beside").value);
  count();
}

function titled(card) {
  return [card.name, ...card.aliases, card.remark].filter(Boolean).join(", ");
}

function count() {
  const limit = cardOf(at("model").value).limits.characters;
  const length = [...at("text").value].length;
  at("count").textContent = `${length.toLocaleString("en")} of ${limit.toLocaleString("en")} characters`;
}

function requestFor(name) {
  const request = { text: at("text").value, model: BESIDE[name] ? at("model").value : name };
  const beam = name === "@greedy" ? 1 : Number(name === "@beam" ? 0 : at("beam").value) || 0;
  if (beam) request.beam = beam;
  if (at("alpha").value && name !== "@beam") request.alpha = Number(at("alpha").value);
  const nbest = Number(at("nbest").value) || 1;
  const most = 2 * (beam || cardOf(request.model).beam) - 1;
  request.nbest = name === at("model").value ? nbest : Math.min(nbest, most);
  return request;
}

// The version, and its search where the same version stands beside.
function titleOf({ model, search }, beside) {
  if (!BESIDE[beside]) return model;
  return `${model}, ${search.beam === 1 ? "greedy" : `beam ${search.beam}`}`;
}

async function run(restored = false) {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  showError("");
  attentionView.close();
  if (!restored) chosen = { side: 0, key: "" };
  const names = [at("model").value, at("beside").value].filter(Boolean);
  at("panes").classList.toggle("two", names.length > 1);
  at("pane-1").hidden = names.length < 2;
  sides.forEach((side) => side.clear());
  at("engines").textContent = "";
  if (!at("text").value.trim()) {
    at("status").textContent = "";
    saveView();
    return;
  }
  const started = performance.now();
  let [total, done] = [0, 0];
  const showProgress = () => (at("status").textContent = `${done} of ${total} sentences`);

  async function one(name, number) {
    for await (const message of translate(requestFor(name), signal)) {
      if (signal.aborted) return;
      if (message.paragraphs) {
        sides[number].begin(message, cardOf(message.model).target_language, titleOf(message, at("beside").value));
        total += message.paragraphs.flat().length;
      } else if (message.translated) {
        done += 1;
        sides[number].fill(message);
        const key = `${message.paragraph}.${message.sentence}`;
        if (names.length > 1) compare(sides[0], sides[1], key);
        if ((!chosen.key && !number) || (chosen.side === number && chosen.key === key)) choose(number, key);
      }
      showProgress();
    }
  }

  try {
    await Promise.all(names.map(one));
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    at("status").textContent = `${total} ${total === 1 ? "sentence" : "sentences"} in ${seconds} s`;
    showEngines();
  } catch (error) {
    if (error.name === "AbortError") return;
    running.abort();
    at("status").textContent = "";
    showError(error.message);
  }
  saveView();
}

// Which engine answered, version by version.
function showEngines() {
  const found = sides.filter((side) => side.model).map((side) => {
    const engines = [...side.cells.values()].map((cell) => cell.translated?.engine).filter(Boolean);
    return `${side.model} by ${[...new Set(engines)].join(" and ")}`;
  });
  at("engines").textContent = `Searched: ${[...new Set(found)].join("; ")}`;
}

function choose(side, key) {
  const cell = sides[side].cells.get(key);
  if (!cell?.translated) return;
  if (chosen.key !== key || chosen.side !== side) {
    if (chosen.key) attentionView.view.hypothesis = 0;
    attentionView.row = 0;
  }
  chosen = { side, key };
  sides.forEach((each, number) => each.highlight(number === side ? key : ""));
  attentionView.open(sides[side].model, cell.translated);
  saveView();
}

// Save the view in the address's fragment, which is never sent to a server.
function saveView() {
  const { kind, layer, head, hypothesis } = attentionView.view;
  const values = {
    text: at("text").value, model: at("model").value, beside: at("beside").value, beam: at("beam").value,
    alpha: at("alpha").value, nbest: at("nbest").value, sentence: chosen.key, side: chosen.side, kind, layer, head, hypothesis,
  };
  const set = Object.entries(values).filter(([, value]) => value);
  const fragment = `#${new URLSearchParams(set)}`;
  if (fragment !== location.hash) history.replaceState(null, "", fragment);
}

function restoreView() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const number = (name) => Math.max(0, Math.trunc(Number(parameters.get(name))) || 0);
  at("text").value = parameters.get("text") || "";
  const card = cardOf(parameters.get("model") || "") || known[0];
  at("model").value = card.name;
  updateOptions();
  const beside = parameters.get("beside") || "";
  at("beside").value = BESIDE[beside] ? beside : cardOf(beside)?.name || "";
  for (const name of ["beam", "alpha"]) at(name).value = parameters.get(name) || "";
  at("nbest").value = `${number("nbest") || 1}`;
  const kind = ["cross", "encoder", "decoder"].find((each) => each === parameters.get("kind")) || "cross";
  Object.assign(attentionView.view, { kind, layer: number("layer"), head: number("head"), hypothesis: number("hypothesis") });
  chosen = { side: number("side") === 1 ? 1 : 0, key: parameters.get("sentence") || "" };
  updateOptions();
  if (at("text").value) run(true);
  const missing = [parameters.get("model"), BESIDE[beside] ? "" : beside].some((name) => name && !cardOf(name));
  if (missing) showError("A version that this link names is not served here.");
}

async function start() {
  try {
    known = await models();
  } catch (error) {
    showError(error.message);
    return;
  }
  setOptions(at("model"), known.map((card) => [card.name, titled(card)]), "");
  restoreView();
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  at("text").addEventListener("input", count);
  at("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
  });
  for (const id of ["model", "beside", "beam", "alpha", "nbest"]) {
    at(id).addEventListener("change", () => {
      updateOptions();
      run();
    });
  }
  at("link").addEventListener("click", async () => {
    saveView();
    try {
      await navigator.clipboard.writeText(location.href);
      at("status").textContent = "The link to this view is copied.";
    } catch {
      at("status").textContent = "The address bar holds the link to this view.";
    }
  });
  window.addEventListener("hashchange", restoreView);
}

start();
