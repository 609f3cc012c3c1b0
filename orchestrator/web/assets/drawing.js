// Shapes of charts, and the places of values on their axes.

const SVG = "http://www.w3.org/2000/svg";

export const extent = (numbers) => numbers.reduce(
  ([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity],
);
export const ratio = (value, [low, high]) => (high > low ? (value - low) / (high - low) : 0.5);

// Round numbers between two values, about `most` of them.
export function ticks([low, high], most) {
  if (!(high > low)) return [low];
  const rough = (high - low) / most;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = magnitude * [1, 2, 5, 10].find((factor) => factor * magnitude >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
}

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
