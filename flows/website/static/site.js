// Every page: the theme, which stays chosen, and tables that are sorted by the buttons in their heads.
"use strict";

const versionData = {}; // by label, as "demo/3"; the files beside the pages of versions fill it
function addVersion(data) { versionData[data.label] = data; }

const storage = {
  read: (name) => { try { return localStorage.getItem(name) || ""; } catch { return ""; } },
  write: (name, value) => { try { localStorage.setItem(name, value); } catch { /* it is forgotten */ } },
};

function setTheme(theme) {
  document.documentElement.style.colorScheme = theme || "light dark";
  document.dispatchEvent(new Event("theme"));
}
setTheme(storage.read("theme")); // before the page is drawn

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("theme")));

document.addEventListener("DOMContentLoaded", () => {
  const label = document.getElementById("theme"), choice = label.querySelector("select");
  choice.value = storage.read("theme");
  choice.addEventListener("change", () => { storage.write("theme", choice.value); setTheme(choice.value); });
  label.hidden = false;
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address keeps what is compared
    document.getElementById("content").focus();
  });
  document.querySelectorAll("table.sortable").forEach(makeSortable);
});

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      sortRows(table.tBodies[0], column, ascending);
    });
  });
}

function sortRows(body, column, ascending) {
  const value = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
  const isNumber = (text) => /^-?[\d.,]/.test(text) && !/^\d{4}-/.test(text);
  const number = (text) => parseFloat(text.replaceAll(",", ""));
  const compare = (a, b) => {
    if (!a || !b) return (a ? 0 : 1) - (b ? 0 : 1); // empty cells come last, whatever the order
    const order = isNumber(a) && isNumber(b) ? number(a) - number(b) : a.localeCompare(b);
    return ascending ? order : -order;
  };
  body.append(...[...body.rows].sort((a, b) => compare(value(a), value(b))));
}
