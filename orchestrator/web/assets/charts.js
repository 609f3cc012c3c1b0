// Charts of values against steps: axes with round numbers, lines, a band, and a legend.

import { draw, extent, painted, ratio, text, ticks } from "./drawing.js";
import { number } from "./shown.js";

const HEIGHT = 320;
const EDGE = { left: 64, right: 64, top: 28, bottom: 44 };
const PIXELS_A_TICK = { across: 90, down: 45 };

// Draws lines and a band into an element, and explains their kinds in a list.
//
// lines: objects with `name`, `kind` (a class: best, running, other, layer-1 ...), `points`, and `label` if the
//   line is named at its end.
// band: quadruples of step, minimum, median and maximum.
// legend: pairs of a kind and a text.
// across, down: names of the axes.
export function chart(svg, list, { lines, band = [], legend, across, down }) {
  painted(svg, (width) => {
    const nodes = shapes(width, lines, band, across, down);
    return { height: nodes.length ? HEIGHT : 0, nodes };
  });
  list.replaceChildren(...legend.map(([kind, meaning]) => entry(kind, meaning)));
}

function shapes(width, lines, band, across, down) {
  const finite = lines.map((line) => ({ ...line, points: line.points.filter(([, value]) => Number.isFinite(value)) }));
  const steps = extent([...finite.flatMap((line) => line.points.map(([step]) => step)), ...band.map(([step]) => step)]);
  const values = extent([
    ...finite.flatMap((line) => line.points.map(([, value]) => value)),
    ...band.flatMap(([, low, , high]) => [low, high]),
  ]);
  if (!Number.isFinite(steps[0])) return [];
  const right = width - EDGE.right;
  const bottom = HEIGHT - EDGE.bottom;
  const x = (step) => EDGE.left + ratio(step, steps) * (right - EDGE.left);
  const y = (value) => bottom - ratio(value, values) * (bottom - EDGE.top);
  const path = (points) => points.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return [
    ...axes({ steps, values, x, y, right, bottom }),
    text(down, 4, 14),
    text(across, (EDGE.left + right) / 2, HEIGHT - 8, "middle"),
    ...ribbon(band, path),
    ...finite.map((line) => draw("polyline", { class: line.kind, points: path(line.points) }, line.name)),
    ...labels(finite, x, y),
  ];
}

// The names at the ends of lines; one that would cover another is left out, and the table below has it.
function labels(lines, x, y) {
  const placed = [];
  for (const { label, points } of lines.toReversed()) {
    if (!label || !points.length) continue;
    const [right, down] = [x(points.at(-1)[0]) + 5, y(points.at(-1)[1]) + 4];
    const isFree = placed.every((other) => Math.abs(other.down - down) > 13 || Math.abs(other.right - right) > 9 * label.length);
    if (isFree) placed.push({ label, right, down });
  }
  return placed.map(({ label, right, down }) => text(label, right, down));
}

function axes({ steps, values, x, y, right, bottom }) {
  const columns = ticks(steps, (right - EDGE.left) / PIXELS_A_TICK.across);
  const rows = ticks(values, (bottom - EDGE.top) / PIXELS_A_TICK.down);
  return [
    ...rows.flatMap((value) => [
      draw("line", { class: "grid", x1: EDGE.left, x2: right, y1: y(value), y2: y(value) }),
      text(number(value), EDGE.left - 6, y(value) + 4, "end"),
    ]),
    ...columns.flatMap((step) => [
      draw("line", { class: "axis", x1: x(step), x2: x(step), y1: bottom, y2: bottom + 5 }),
      text(number(step), x(step), bottom + 18, "middle"),
    ]),
    draw("line", { class: "axis", x1: EDGE.left, x2: right, y1: bottom, y2: bottom }),
    draw("line", { class: "axis", x1: EDGE.left, x2: EDGE.left, y1: EDGE.top, y2: bottom }),
  ];
}

function ribbon(band, path) {
  if (!band.length) return [];
  const lower = band.map(([step, low]) => [step, low]);
  const upper = band.map(([step, , , high]) => [step, high]);
  return [
    draw("polygon", { class: "band", points: path([...lower, ...upper.toReversed()]) }),
    draw("polyline", { class: "median", points: path(band.map(([step, , middle]) => [step, middle])) }),
  ];
}

function entry(kind, meaning) {
  const item = document.createElement("li");
  const swatch = draw("svg", { viewBox: "0 0 32 12", width: 32, height: 12, "aria-hidden": "true" });
  swatch.append(kind === "band"
    ? draw("rect", { class: "band", x: 0, y: 1, width: 32, height: 10 })
    : draw("polyline", { class: kind, points: "0,6 32,6" }));
  item.append(swatch, ` ${meaning}`);
  return item;
}
