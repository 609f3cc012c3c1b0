// Tables that keep their rows, the focus and the selection while their values change.

import { announce } from "./shown.js";

// Rows are kept by their key. Only cells that differ are written, and only rows out of place are moved, because
// a browser takes the focus from what is moved.
export function fill(body, rows, key, cells) {
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = rows.map((entry) => {
    const name = String(key(entry));
    const row = known.get(name) ?? document.createElement("tr");
    known.delete(name);
    row.dataset.key = name;
    cells(entry).forEach((content, column) => put(row, column, content, body));
    return row;
  });
  const focused = document.activeElement;
  for (const row of known.values()) row.remove();
  const inPlace = longestInOrder(wanted, [...body.rows]);
  let next = null;
  for (const row of wanted.toReversed()) {
    if (!inPlace.has(row)) body.insertBefore(row, next);
    next = row;
  }
  if (body.contains(focused) && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

// Returns as many rows as possible whose order in the table is the wanted one: a longest increasing subsequence.
function longestInOrder(wanted, present) {
  const places = new Map(present.map((row, place) => [row, place]));
  const ends = []; // ends[n]: the last row of a sequence of n + 1 rows, with the smallest place
  const before = new Map();
  for (const row of wanted.filter((row) => places.has(row))) {
    let length = ends.findIndex((end) => places.get(end) >= places.get(row));
    if (length < 0) length = ends.length;
    before.set(row, ends[length - 1]);
    ends[length] = row;
  }
  const found = new Set();
  for (let row = ends.at(-1); row; row = before.get(row)) found.add(row);
  return found;
}

function put(row, column, content, body) {
  const cell = row.cells[column] ?? inserted(row, column, body);
  const text = content instanceof Node ? content.outerHTML : String(content ?? "");
  if (cell.dataset.shown === text) return;
  cell.dataset.shown = text;
  const hadFocus = cell.contains(document.activeElement);
  if (content instanceof Node) cell.replaceChildren(content);
  else cell.textContent = text;
  if (hadFocus) cell.querySelector("a, button, input")?.focus({ preventScroll: true });
}

// A column of numbers is marked in its heading; its cells are aligned in the same way.
function inserted(row, column, body) {
  const cell = row.insertCell();
  const heading = body.closest("table").tHead?.rows[0]?.cells[column];
  if (heading?.classList.contains("number")) cell.className = "number";
  return cell;
}

// Shows by what a table is sorted, and calls `sorted` after the user has chosen another order. A first click on a
// heading shows the smallest value first, or the largest one if its button has `data-first="descending"`.
export function sortable(head, order, sorted) {
  head.addEventListener("click", (event) => {
    const { sort, first } = event.target.dataset;
    if (!sort) return;
    order.descending = sort === order.sort ? !order.descending : first === "descending";
    order.sort = sort;
    markOrder(head, order);
    sorted();
  });
  markOrder(head, order);
}

export function markOrder(head, order) {
  for (const cell of head.cells) {
    if (cell.querySelector("button")?.dataset.sort === order.sort) {
      cell.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
    } else {
      cell.removeAttribute("aria-sort");
    }
  }
}

export function anchor(address, text) {
  const shown = document.createElement("a");
  shown.href = address;
  shown.textContent = text;
  return shown;
}

export const sweepAddress = (sweep) => `/sweeps/${encodeURIComponent(sweep)}`;
export const sweepLink = (sweep) => anchor(sweepAddress(sweep), sweep);

// A link to a trial by its number, or by `c` and its number for a confirmation.
export function trialLink(sweep, label) {
  const isConfirmation = String(label).startsWith("c");
  const number = isConfirmation ? label.slice(1) : label;
  const role = isConfirmation ? "?role=confirmation" : "";
  return anchor(`${sweepAddress(sweep)}/trials/${number}${role}`, isConfirmation ? `confirmation ${number}` : number);
}

export const trialLabel = (trial) => (trial.role === "search" ? String(trial.number) : `c${trial.number}`);

// The name of a state; its colour adds to the word and never replaces it.
export function badge(state) {
  const shown = document.createElement("span");
  shown.className = "badge";
  shown.dataset.state = state;
  shown.textContent = state;
  return shown;
}

export function bar(value, most, label) {
  const shown = document.createElement("progress");
  shown.max = most;
  shown.value = value;
  shown.setAttribute("value", value);
  shown.setAttribute("aria-label", label);
  return shown;
}

// A button that copies a text, or shows it where the browser forbids that: without TLS, on other machines.
export function copyButton(label, content) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.title = content;
  button.textContent = label;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(content);
    } catch {
      button.textContent = content;
      return;
    }
    announce("copy", `Copied: ${content}`);
    button.dataset.copied = "yes";
  });
  return button;
}
