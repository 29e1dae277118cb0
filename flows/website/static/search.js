// Search over the index: an entry is found if it contains every word. The address keeps the words after its "#".
"use strict";

const MOST_SHOWN = 100, WAIT_MS = 60;
const entries = [], input = document.getElementById("words");

function addEntries(found) { // called by the files of the index, which are loaded after this one
  for (const [kind, title, text, page] of found) {
    entries.push({ kind, title, text, page, words: `${kind} ${title} ${text}`.toLowerCase() });
  }
}

function matching(words) {
  const asked = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!asked.length) return [];
  const found = entries.filter((entry) => asked.every((word) => entry.words.includes(word)));
  const inTitle = (entry) => asked.every((word) => entry.title.toLowerCase().includes(word));
  const titled = found.filter(inTitle);
  return [...titled, ...found.filter((entry) => !inTitle(entry))];
}

function commandWords(command) { // no line begins within --set
  return command.split(" ").flatMap((text, place) => {
    const word = document.createElement("span");
    word.className = "word";
    word.textContent = text;
    return place ? [" ", word] : [word];
  });
}

function line(entry) {
  const item = document.createElement("li"), kind = document.createElement("span");
  kind.className = "badge";
  kind.textContent = entry.kind;
  const title = document.createElement(entry.page ? "a" : "span");
  title.replaceChildren(...(entry.kind === "run" ? commandWords(entry.title) : [entry.title]));
  if (entry.page) title.href = entry.page;
  const text = document.createElement("div");
  text.className = "muted";
  text.textContent = entry.text;
  item.append(kind, " ", title, text);
  return item;
}

function show() {
  const words = input.value.trim(), found = matching(words);
  history.replaceState(null, "", `#${encodeURIComponent(words)}`);
  const shown = found.length > MOST_SHOWN ? `, the first ${MOST_SHOWN} are shown` : "";
  document.getElementById("count").textContent = words
    ? `${found.length.toLocaleString("en")} of ${entries.length.toLocaleString("en")} found${shown}`
    : `${entries.length.toLocaleString("en")} entries`;
  document.getElementById("found").replaceChildren(...found.slice(0, MOST_SHOWN).map(line));
}

let timer = 0;
input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(show, WAIT_MS); });

function readAddress() {
  input.value = decodeURIComponent(location.hash.slice(1));
  show();
}
addEventListener("hashchange", readAddress);
document.addEventListener("DOMContentLoaded", readAddress);
