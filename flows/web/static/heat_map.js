// Draws attention weights on a canvas: a row for each token that attends, a column for each attended token.

const [MIN_CELL, MAX_CELL] = [22, 48];
const TITLE_HEIGHT = 44;
const SCALE = 2; // pixels per unit, so that a saved picture is sharp
const MAX_HEIGHT = 544;
const FONT = '13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace';

export function drawHeatMap(canvas, { rows, columns }, weights, title) {
  const context = canvas.getContext("2d");
  const color = (name) => getComputedStyle(canvas).getPropertyValue(name);
  const longest = (texts) => Math.max(...texts.map((text) => context.measureText(text).width)) + 12;
  context.font = FONT;
  const [left, top] = [longest(rows), longest(columns)];
  const available = canvas.parentElement.clientWidth - left - 6;
  const cell = Math.min(MAX_CELL, Math.max(MIN_CELL, Math.floor(available / columns.length)));
  const width = Math.max(left + cell * columns.length + 6, longest([title]));
  const height = top + cell * rows.length + TITLE_HEIGHT;
  Object.assign(canvas, { width: SCALE * width, height: SCALE * height });
  canvas.style.width = `${Math.min(width, (width * MAX_HEIGHT) / height)}px`;
  context.scale(SCALE, SCALE);
  Object.assign(context, { font: FONT, textBaseline: "middle", fillStyle: color("--page") });
  context.fillRect(0, 0, width, height);
  context.fillStyle = color("--strong");
  const maximum = Math.max(...weights.flat());
  weights.forEach((row, r) => row.forEach((weight, c) => {
    context.globalAlpha = weight / maximum;
    context.fillRect(left + c * cell, top + r * cell, cell, cell);
  }));
  Object.assign(context, { globalAlpha: 1, fillStyle: color("--ink") });
  context.fillText(title, 6, height - TITLE_HEIGHT / 4);
  context.textAlign = "right";
  rows.forEach((token, r) => context.fillText(token, left - 6, top + (r + 0.5) * cell));
  context.textAlign = "left";
  context.translate(left, top - 6);
  context.rotate(-Math.PI / 2);
  columns.forEach((token, c) => context.fillText(token, 0, (c + 0.5) * cell));
}
