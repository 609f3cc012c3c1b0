// Shapes of charts, and the places of values on their axes.

import { brief } from "./shown.js";

const SVG = "http://www.w3.org/2000/svg";
const PIXELS_A_CHARACTER = 7.2;
const TICK_DIGITS = 5;
const LONGEST_WHOLE = 99_999;
const UNITS = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

export const extent = (numbers) => numbers.reduce(
  ([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity],
);
export const ratio = (value, [low, high]) => (high > low ? (value - low) / (high - low) : 0.5);

// Round numbers between two values, about `most` of them, at least `smallest` apart.
export function ticks([low, high], most, smallest = 0) {
  if (!(high > low)) return [low];
  const rough = Math.max((high - low) / most, smallest);
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = magnitude * [1, 2, 5, 10].find((factor) => factor * magnitude >= rough * (1 - 1e-9));
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
}

// Powers of ten between two positive values, with their halves and fifths if there are few.
export function logTicks([low, high], most) {
  const decades = Math.log10(high / low);
  if (!(decades > 0)) return [low];
  const factors = decades <= 1 ? [1, 1.5, 2, 3, 5, 7] : decades <= most / 3 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / most));
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1e-9; power += every) {
    found.push(...factors.map((factor) => Number((factor * 10 ** power).toPrecision(12))));
  }
  return found.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
}

// The value below which a part of sorted numbers lies, between two of them by their distance.
export function quantile(sorted, part) {
  const place = part * (sorted.length - 1);
  const low = Math.floor(place);
  const next = sorted[Math.min(low + 1, sorted.length - 1)];
  return sorted[low] + (place - low) * (next - sorted[low]);
}

const PERCENTILES = [0.02, 0.95];
const OUTLYING = 5; // times the distance between the quartiles, from the median

// The range of values without outliers: the 2nd to the 95th percentile, or nearer to the median if those are far away.
export function typicalRange(values) {
  const sorted = values.toSorted((one, other) => one - other);
  if (!sorted.length) return [Infinity, -Infinity];
  const last = sorted.length - 1;
  const ends = [sorted[Math.ceil(PERCENTILES[0] * last)], sorted[Math.floor(PERCENTILES[1] * last)]];
  const [median, spread] = [quantile(sorted, 0.5), quantile(sorted, 0.75) - quantile(sorted, 0.25)];
  const near = sorted.filter((value) => Math.abs(value - median) <= OUTLYING * spread);
  return near.length ? [Math.max(ends[0], near[0]), Math.min(ends[1], near.at(-1))] : ends;
}

// A number at an axis: large ones with a unit, such as 10M.
export function tickText(value) {
  const size = Math.abs(value);
  if (size <= LONGEST_WHOLE || size >= 1e12) return Number.isInteger(value) && size < 1e12 ? String(value) : brief(value, TICK_DIGITS);
  const [unit, mark] = UNITS.find(([least]) => size >= least);
  return `${brief(value / unit, TICK_DIGITS)}${mark}`;
}

export const textWidth = (texts) => Math.max(0, ...texts.map((each) => String(each).length)) * PIXELS_A_CHARACTER;

export function draw(name, attributes, title) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (title) {
    const label = document.createElementNS(SVG, "title");
    label.textContent = title;
    node.append(label);
  }
  return node;
}

export function text(content, x, y, anchor = "start") {
  const node = draw("text", { x, y, "text-anchor": anchor });
  node.textContent = content;
  return node;
}

// Lets a chart be drawn again when its width changes; its units are pixels of the page, so that its labels can be
// read on a phone.
const drawings = new WeakMap();
const widths = new ResizeObserver((entries) => entries.forEach(({ target }) => paint(target)));

export function painted(svg, drawing) {
  drawings.set(svg, drawing);
  widths.observe(svg);
  paint(svg);
}

function paint(svg) {
  const width = Math.round(svg.clientWidth);
  if (!width) return; // in a section that is closed
  const { height, nodes } = drawings.get(svg)(width);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.replaceChildren(...nodes);
}
