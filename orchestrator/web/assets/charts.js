// Charts of values against steps: scales, axes with round numbers, lines, a band, references, a crosshair, a legend.

import { draw, extent, logTicks, painted, ratio, text, textWidth, tickText, ticks, typicalRange } from "./drawing.js";
import { element, number, plural } from "./shown.js";

const HEIGHT = 250;
const EDGE = { right: 56, top: 28, bottom: 44 };
const PIXELS_A_TICK = { across: 90, down: 34 };
const OUTLYING = 5; // times the range of the percentiles that all values must exceed for that scale to be chosen
const NEAR = 24; // pixels between a click and its line
const MOST_READ = 8; // values beside a crosshair
const DOT_REACH = 8; // pixels from a crosshair to a dot that it names
const REFERENCE_REACH = 0.6; // of the range of the values, by which it grows at most to show a reference

const charts = new WeakMap(); // by SVG element: what it shows, its scales and its crosshair

// Draws lines and a band into an element, and explains their kinds in a list.
//
// lines: objects with `name`, `kind` (classes: best, running run-3, other, layer-1 ...), `points` (pairs of a place
//   on the lower axis and a value, null if it is not finite), `label` if the line is named at its end, and `key`.
// band: quadruples of step, minimum, median and maximum.
// dots: objects with `name`, `kind`, `place` on the lower axis, `value` and `key`.
// legend: pairs of a kind and a text.
// across, down: names of the axes.
// scale: `linear`, `log` or `percentile` of the values; null for percentile if outliers flatten the others.
// references: objects with `name` and `value`, dashed lines across.
// rungs: places on the lower axis, dotted lines from top to bottom.
// isWhole: whether places on the lower axis are whole numbers.
// pick: called with the key of a line that is clicked, or chosen with Enter at the crosshair.
// readout: id of an element that shows the values at the crosshair.
//
// Returns the scale that is drawn.
export function chart(svg, list, { scale = null, band = [], dots = [], references = [], rungs = [], isWhole = true, ...given }) {
  const data = { band, dots, references, rungs, isWhole, ...given };
  const shown = { ...data, scale: scale ?? scaleFor(data) };
  const isNew = !charts.has(svg);
  charts.set(svg, { shown, cross: charts.get(svg)?.cross ?? null });
  if (isNew && shown.readout) follow(svg);
  painted(svg, (width) => {
    const nodes = shapes(svg, width, shown);
    return { height: nodes.length ? HEIGHT : 0, nodes };
  });
  list.replaceChildren(...shown.legend.map(([kind, meaning]) => entry(kind, meaning)));
  moveCross(svg);
  return shown.scale;
}

// Makes the lines of a trial stand out in a chart, or none if the key is null.
export function light(svg, key) {
  for (const line of svg.querySelectorAll("polyline")) line.classList.toggle("lit", key !== null && line.dataset.key === String(key));
}

const finite = (points) => points.filter(([, value]) => Number.isFinite(value));
const lastValue = (points) => finite(points).at(-1)?.[1];

function scaleFor(data) {
  const [low, high] = percentiles(data);
  const [lowest, highest] = extent(allValues(data));
  const count = data.lines.length + data.band.length + data.dots.length;
  return count > 3 && high > low && highest - lowest > OUTLYING * (high - low) ? "percentile" : "linear";
}

const allValues = ({ lines, band, dots }) => [
  ...lines.flatMap((line) => finite(line.points).map(([, value]) => value)), ...band.flatMap(([, low, , high]) => [low, high]),
  ...dots.map(({ value }) => value),
];

// The range of the last values without the outliers, widened to the best line.
function percentiles({ lines, band, dots }) {
  const lasts = [...lines.map((line) => lastValue(line.points)), ...dots.map(({ value }) => value)].filter(Number.isFinite);
  const inner = typicalRange([...lasts, ...band.slice(-1).map(([, , middle]) => middle)]);
  const best = lines.filter((line) => line.kind === "best").map((line) => lastValue(line.points)).filter(Number.isFinite);
  const [low, high] = extent([...inner, ...best]);
  if (!Number.isFinite(low)) return [low, high];
  const margin = 0.08 * (high - low || Math.abs(high) || 1);
  return [low - margin, high + margin];
}

function rangeOf(data) {
  if (data.scale === "percentile") return percentiles(data);
  const values = allValues(data);
  if (data.scale === "log") return extent(values.filter((value) => value > 0));
  const [low, high] = extent(values);
  const reach = REFERENCE_REACH * (high - low);
  const near = data.references.map(({ value }) => value).filter((value) => value > low - reach && value < high + reach);
  return extent([low, high, ...near]);
}

function shapes(svg, width, shown) {
  const { lines, band, dots, references, rungs, across, down, scale, isWhole } = shown;
  const steps = extent([...lines.flatMap((line) => line.points.map(([step]) => step)), ...band.map(([step]) => step), ...dots.map(({ place }) => place)]);
  const values = rangeOf(shown);
  if (!Number.isFinite(steps[0]) || !Number.isFinite(values[0])) return [];
  const bottom = HEIGHT - EDGE.bottom;
  const most = (bottom - EDGE.top) / PIXELS_A_TICK.down;
  const rows = scale === "log" ? logTicks(values, most) : ticks(values, most);
  const left = Math.ceil(textWidth(rows.map(tickText)) + 14);
  const right = width - EDGE.right;
  const place = scale === "log" ? (value) => Math.log10(Math.max(value, values[0])) : (value) => value;
  const ends = values.map(place);
  const x = (step) => left + ratio(step, steps) * (right - left);
  const y = (value) => bottom - ratio(place(value), ends) * (bottom - EDGE.top);
  const path = (points) => points.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  charts.get(svg).places = { x, y, steps, values, left, right, bottom };
  const columns = ticks(steps, (right - left) / PIXELS_A_TICK.across, isWhole ? 1 : 0);
  const clip = `${svg.id}-area`;
  const area = draw("clipPath", { id: clip });
  area.append(draw("rect", { x: left, y: EDGE.top - 1, width: Math.max(0, right - left + 1), height: bottom - EDGE.top + 2 }));
  const drawn = draw("g", { "clip-path": `url(#${clip})` });
  drawn.append(...ribbon(band, path), ...lines.flatMap((line) => strokes(line, path)));
  const round = dots.filter(({ value }) => value >= values[0] && value <= values[1]);
  return [
    area,
    ...rows.flatMap((value) => [
      draw("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      text(tickText(value), left - 6, y(value) + 4, "end"),
    ]),
    ...columns.flatMap((step) => [
      draw("line", { class: "axis", x1: x(step), x2: x(step), y1: bottom, y2: bottom + 5 }),
      text(tickText(step), x(step), bottom + 18, "middle"),
    ]),
    draw("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    draw("line", { class: "axis", x1: left, x2: left, y1: EDGE.top, y2: bottom }),
    text(scale === "linear" ? down : `${down} (${scale})`, 4, 14),
    text(across, (left + right) / 2, HEIGHT - 8, "middle"),
    ...rungs.filter((rung) => rung >= steps[0] && rung <= steps[1]).map((rung) => (
      draw("line", { class: "rung", x1: x(rung), x2: x(rung), y1: EDGE.top, y2: bottom }, `rung at step ${number(rung)}`)
    )),
    drawn,
    ...dashes(references, { y, values, left, right }),
    ...breaks(lines, { x, y, values }),
    ...round.map((dot) => draw("circle", { class: `dot ${dot.kind}`, cx: x(dot.place).toFixed(1), cy: y(dot.value).toFixed(1), r: dot.kind === "best" ? 5 : 3 }, `${dot.name}: ${number(dot.value)}`)),
    ...outliers(shown, { x, values, right, bottom }),
    ...labels(lines, x, y, values),
    draw("g", { class: "cross" }),
  ];
}

// A line in pieces, one between two gaps.
function strokes({ kind, key, name, points }, path) {
  const pieces = [[]];
  for (const point of points) {
    if (Number.isFinite(point[1])) pieces.at(-1).push(point);
    else if (pieces.at(-1).length) pieces.push([]);
  }
  return pieces.filter((piece) => piece.length).map((piece) => {
    const stroke = draw("polyline", { class: kind, points: path(piece) }, name);
    if (key !== undefined) stroke.dataset.key = key;
    return stroke;
  });
}

// A cross where a line ends because its next value is not finite.
function breaks(lines, { x, y, values }) {
  return lines.flatMap(({ name, points }) => {
    const gap = points.findIndex(([, value]) => !Number.isFinite(value));
    if (gap < 0) return [];
    const before = finite(points.slice(0, gap)).at(-1);
    const [across, down] = [x(points[gap][0]), y(before ? Math.min(Math.max(before[1], values[0]), values[1]) : values[0])];
    return [draw("path", { class: "gap", d: `M${across - 4},${down - 4}l8,8m0,-8l-8,8` }, `${name}: NaN from step ${points[gap][0]}`)];
  });
}

// Arrows at the edge for lines that end beyond it, with their number.
function outliers({ lines, band, dots }, { x, values: [low, high], right, bottom }) {
  const ends = [...lines.map((line) => finite(line.points).at(-1)).filter(Boolean), ...dots.map(({ place, value }) => [place, value])];
  const [above, below] = [ends.filter(([, value]) => value > high), ends.filter(([, value]) => value < low)];
  const arrow = (step, y, way) => draw("path", { class: "arrow", d: `M${x(step) - 4},${y}l4,${-7 * way}l4,${7 * way}z` });
  const edge = (count, others, bound, word) => {
    const parts = [count ? `${plural(count, "trial")} ${word} ${tickText(bound)}` : "", others];
    return parts.filter(Boolean).join(", ");
  };
  const highest = Math.max(...band.map(([, , , value]) => value));
  const lowest = Math.min(...band.map(([, value]) => value));
  const over = edge(above.length, highest > high ? `others up to ${tickText(highest)}` : "", high, "above");
  const under = edge(below.length, lowest < low ? `others down to ${tickText(lowest)}` : "", low, "below");
  return [
    ...above.map(([step]) => arrow(step, EDGE.top + 8, 1)), ...below.map(([step]) => arrow(step, bottom - 8, -1)),
    ...(over ? [text(`▲ ${over}`, right, EDGE.top - 8, "end")] : []), ...(under ? [text(`▼ ${under}`, right, bottom - 10, "end")] : []),
  ];
}

function dashes(references, { y, values: [low, high], left, right }) {
  const named = (outside) => outside.map(({ name, value }) => `${name} ${number(value)}`).join(", ");
  const [above, below] = [references.filter(({ value }) => value > high), references.filter(({ value }) => value < low)];
  const beyond = [
    ...(above.length ? [text(`${named(above)} ▲`, left + 6, EDGE.top + 10)] : []),
    ...(below.length ? [text(`${named(below)} ▼`, left + 6, HEIGHT - EDGE.bottom - 6)] : []),
  ];
  return [...beyond, ...references.filter(({ value }) => value >= low && value <= high).flatMap(({ name, value }) => {
    const label = `${name} ${number(value)}`;
    const down = y(value) < EDGE.top + 14 ? 13 : -4; // below its line at the upper edge
    return [draw("line", { class: "reference", x1: left, x2: right, y1: y(value), y2: y(value) }), text(label, left + 6, y(value) + down)];
  })];
}

// The names at the ends of lines; one that would cover another is left out, and the table below has it.
function labels(lines, x, y, [low, high]) {
  const placed = [];
  for (const { label, points } of lines.toReversed()) {
    const last = finite(points).at(-1);
    if (!label || !last || last[1] > high || last[1] < low) continue;
    const [right, down] = [x(last[0]) + 5, y(last[1]) + 4];
    const isFree = placed.every((other) => Math.abs(other.down - down) > 13 || Math.abs(other.right - right) > 9 * label.length);
    if (isFree) placed.push({ label, right, down });
  }
  return placed.map(({ label, right, down }) => text(label, right, down));
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
  const shapes = {
    band: () => draw("rect", { class: "band", x: 0, y: 1, width: 32, height: 10 }),
    dot: () => draw("circle", { class: kind, cx: 16, cy: 6, r: 4 }),
  };
  swatch.append((shapes[kind.split(" ")[0]] ?? (() => draw("polyline", { class: kind, points: "0,6 32,6" })))());
  item.append(swatch, ` ${meaning}`);
  return item;
}

// Lets the pointer and the arrow keys move a crosshair, which names the values there.
function follow(svg) {
  svg.tabIndex = 0;
  svg.addEventListener("pointermove", ({ offsetX, offsetY }) => setCross(svg, { across: offsetX, down: offsetY }));
  svg.addEventListener("pointerleave", () => setCross(svg, null));
  svg.addEventListener("click", ({ offsetX, offsetY }) => {
    setCross(svg, { across: offsetX, down: offsetY });
    const [nearest] = valuesAtCross(svg);
    if (nearest?.key !== undefined && nearest.distance <= NEAR) charts.get(svg).shown.pick?.(nearest.key);
  });
  svg.addEventListener("keydown", (event) => {
    const state = charts.get(svg);
    if (event.key === "Enter" && state.cross) {
      const [top] = valuesAtCross(svg);
      if (top?.key !== undefined) state.shown.pick?.(top.key);
    }
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way || !state.places) return;
    event.preventDefault();
    const { lines, dots } = state.shown;
    const steps = [...new Set([...lines.flatMap((line) => line.points.map(([step]) => step)), ...dots.map(({ place }) => place)])].sort((one, other) => one - other);
    const { x, right } = state.places;
    const here = state.cross?.across ?? (way > 0 ? -Infinity : right + 1);
    const next = way > 0 ? steps.find((step) => x(step) > here + 0.5) : steps.findLast((step) => x(step) < here - 0.5);
    if (next !== undefined) setCross(svg, { across: x(next), down: null });
  });
}

function setCross(svg, cross) {
  charts.get(svg).cross = cross;
  moveCross(svg);
}

function moveCross(svg) {
  const { cross, places, shown } = charts.get(svg);
  const group = svg.querySelector("g.cross");
  if (!group || !shown.readout) return;
  const found = cross ? valuesAtCross(svg) : [];
  const nearest = found.find((one) => one.distance <= NEAR);
  light(svg, cross?.down !== null && nearest?.key !== undefined ? nearest.key : null);
  svg.classList.toggle("picks", Boolean(shown.pick && nearest?.key !== undefined));
  if (!found.length) {
    group.replaceChildren();
    element(shown.readout).textContent = "";
    return;
  }
  const { x, left, right, bottom } = places;
  const at = Math.min(Math.max(cross.across, left), right);
  group.replaceChildren(
    draw("line", { x1: at, x2: at, y1: EDGE.top, y2: bottom }),
    ...found.filter((one) => one.isInside).map((one) => draw("circle", { cx: x(one.step), cy: one.down, r: 3 })),
  );
  const read = found.slice(0, MOST_READ).toSorted((one, other) => one.down - other.down);
  const values = read.map(({ name, value }) => `${name} ${number(value)}`).join(" · ");
  const more = found.length > read.length ? ` · ${found.length - read.length} more` : "";
  element(shown.readout).textContent = `${shown.across} ${tickText(shown.isWhole ? Math.round(found[0].at) : Math.round(found[0].at * 10) / 10)}: ${values}${more}`;
}

// The values of the lines at the crosshair, the nearest to the pointer first, or from top to bottom without one.
function valuesAtCross(svg) {
  const { cross, places, shown } = charts.get(svg);
  if (!places || !cross) return [];
  const { x, y, left, right, steps, values } = places;
  const inside = (value) => Math.min(Math.max(value, values[0]), values[1]);
  const at = steps[0] + (Math.min(Math.max(cross.across, left), right) - left) / (right - left || 1) * (steps[1] - steps[0]);
  const near = shown.lines.flatMap(({ key, name, points }) => {
    const known = finite(points);
    if (!known.length || known[0][0] > at + 1e-9 || known.at(-1)[0] < at - 1e-9) return [];
    const [step, value] = known.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
    const down = y(inside(value));
    const reach = Math.abs(x(step) - cross.across);
    const isInside = value >= values[0] && value <= values[1];
    return [{ key, name, step, value, down, isInside, at, distance: cross.down === null ? down : Math.hypot(down - cross.down, reach / 4) }];
  });
  const spots = shown.dots.filter(({ place }) => Math.abs(x(place) - cross.across) <= DOT_REACH).map(({ key, name, place, value }) => {
    const down = y(inside(value));
    const isInside = value >= values[0] && value <= values[1];
    const distance = cross.down === null ? Math.abs(x(place) - cross.across) : Math.hypot(down - cross.down, x(place) - cross.across);
    return { key, name, step: place, value, down, isInside, at, distance };
  });
  return [...near, ...spots].sort((one, other) => one.distance - other.distance);
}
