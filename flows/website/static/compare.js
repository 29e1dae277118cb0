// Two versions side by side: what differs in settings, code and machine, scores, and the curves of both trainings.
// The address names them after its "#", as in compare.html#demo/1%20demo/3.
"use strict";

const byId = (id) => document.getElementById(id);
const sides = [byId("a"), byId("b")];
let latest = 0;

function load(label) {
  if (versionData[label]) return Promise.resolve(versionData[label]);
  return new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = `${versionPages[label].replace(/\.html$/, "")}.js`;
    script.onload = () => done(versionData[label]);
    script.onerror = () => failed(new Error(`${script.src} cannot be read`));
    document.head.append(script);
  });
}

function table(element, heads, rows) {
  const head = document.createElement("thead"), body = document.createElement("tbody");
  const add = (to, cells, isHead) => {
    const row = to.insertRow();
    cells.forEach((cell, column) => {
      const made = document.createElement(isHead || column === 0 ? "th" : "td");
      if (made.tagName === "TH") made.scope = isHead ? "col" : "row";
      made.textContent = cell.text ?? cell;
      if (cell.kind) made.className = cell.kind;
      row.append(made);
    });
  };
  add(head, heads, true);
  rows.forEach((row) => add(body, row, false));
  element.replaceChildren(head, body);
}

function showFields(a, b) {
  const names = [...new Set([...Object.keys(a.fields), ...Object.keys(b.fields)])];
  const value = (version, name) => version.fields[name] ?? "–";
  const rows = names.filter((name) => value(a, name) !== value(b, name)).map((name) => [name, value(a, name), value(b, name)]);
  byId("differs").textContent = rows.length
    ? "A dash stands for a default, or for what is not known because an artifact was removed."
    : "No recorded setting, commit, library or machine differs.";
  table(byId("fields"), ["field", a.label, b.label], rows);
}

function showScores(a, b) {
  const rows = [];
  for (const [set, scores] of Object.entries(a.scores)) {
    for (const [measure, first] of Object.entries(scores)) {
      const second = b.scores[set]?.[measure];
      if (!second) continue;
      const number = (score) => ({ kind: "number", text: score.value.toFixed(2) + (score.low == null ? "" : ` (${score.low.toFixed(2)}–${score.high.toFixed(2)})`) });
      const gain = second.value - first.value, same = a.references[set] === b.references[set];
      const text = same ? `${gain > 0 ? "+" : ""}${gain.toFixed(2)}` : "other references";
      rows.push([set, measure, number(first), number(second), { kind: "number", text }]);
    }
  }
  const right = (text) => ({ kind: "number", text });
  table(byId("scores"), ["set", "measure", right(a.label), right(b.label), right("B − A")], rows);
}

// B against A at the updates that both checked: each difference, and the mean of up to five around it with 2 standard
// errors.
function atEqualChecks(first, second, percent) {
  const places = first.flatMap((value, at) => (value != null && second[at] != null ? [at] : []));
  const found = places.map((at) => (percent ? 100 * (second[at] / first[at] - 1) : second[at] - first[at]));
  const each = { name: "a dev check", values: first.map(() => null) };
  const mean = { name: "mean of up to 5 ± 2 standard errors", values: [...each.values], low: [...each.values], high: [...each.values] };
  places.forEach((at, number) => {
    const near = found.slice(Math.max(0, number - 2), number + 3), size = near.length;
    const middle = near.reduce((sum, value) => sum + value, 0) / size;
    const error = Math.sqrt(near.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (size - 1) / size);
    each.values[at] = found[number];
    mean.values[at] = middle;
    if (size < 3) return;
    mean.low[at] = middle - 2 * error;
    mean.high[at] = middle + 2 * error;
  });
  return places.length ? [mean, each] : [];
}

function joined(a, b) {
  const measures = [...new Set([...a.curves.measures, ...b.curves.measures].map((measure) => measure.name))];
  const values = (version, name) => {
    const found = version.curves.measures.find((measure) => measure.name === name);
    return found ? found.series[0].values : version.curves.x.map(() => null);
  };
  const data = { label: `${a.label} and ${b.label}`, xLabel: "update", x: [], measures: [] };
  for (const name of measures) {
    const [x, first, second] = uPlot.join([[a.curves.x, values(a, name)], [b.curves.x, values(b, name)]]);
    const series = [{ name: a.label, values: first }, { name: b.label, values: second }];
    data.x = x;
    const log = [a, b].some((version) => version.curves.measures.some((measure) => measure.name === name && measure.log));
    data.measures.push({ name, log, series: series.map((each) => ({ ...each, values: each.values.map((value) => value ?? null) })) });
    const compared = name.startsWith("dev_") ? atEqualChecks(first, second, name === "dev_perplexity") : [];
    if (compared.length) data.measures.push({ name: `${name}, ${name === "dev_perplexity" ? "B / A − 1 in %" : "B − A"}`, series: compared });
  }
  return data;
}

let plot = null;

async function show() {
  const [a, b] = sides.map((side) => side.value.trim()), asked = ++latest;
  const missing = [a, b].filter((label) => label && !Object.hasOwn(versionPages, label));
  byId("trouble").textContent = missing.length ? `No version is called ${missing.join(" or ")}.` : "";
  byId("result").hidden = !(a && b) || missing.length > 0;
  if (byId("result").hidden) return;
  history.replaceState(null, "", `#${encodeURIComponent(`${a} ${b}`)}`);
  try {
    const [first, second] = await Promise.all([load(a), load(b)]);
    if (asked !== latest) return; // another pair was chosen meanwhile
    document.title = `${a} and ${b} compared`;
    showFields(first, second);
    showScores(first, second);
    const data = joined(first, second), element = document.querySelector(".plot");
    element.hidden = data.measures.length === 0;
    if (plot) plot.change(data);
    else plot = new Plot(element, data);
  } catch (error) {
    byId("trouble").textContent = error.message;
  }
}

byId("labels").append(...Object.keys(versionPages).map((label) => new Option(label)));
sides.forEach((side) => side.addEventListener("change", show));
byId("exchange").addEventListener("click", () => {
  [sides[0].value, sides[1].value] = [sides[1].value, sides[0].value];
  show();
});

function readAddress() {
  const asked = decodeURIComponent(location.hash.slice(1)), at = asked.search(/\/\d+ /);
  if (at < 0) return;
  const end = asked.indexOf(" ", at); // a name may hold spaces; a number ends each label
  sides[0].value = asked.slice(0, end);
  sides[1].value = asked.slice(end + 1);
  show();
}
addEventListener("hashchange", readAddress);
readAddress();
