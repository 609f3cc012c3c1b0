// Shapes of charts, and the places of values on their axes.

const SVG = "http://www.w3.org/2000/svg";

export const extent = (numbers) => [Math.min(...numbers), Math.max(...numbers)];
export const ratio = (value, [low, high]) => (high > low ? (value - low) / (high - low) : 0.5);

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

export function text(content, x, y) {
  const node = draw("text", { x, y });
  node.textContent = content;
  return node;
}
