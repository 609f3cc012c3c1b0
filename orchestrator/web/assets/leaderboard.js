// The leaderboard of a sweep: its trials, best first, with a column for each hyperparameter and chosen metric.
//
// Order, filter and columns are in the address of the page, so that a link or a reload shows the same rows.

import { favouriteMark } from "./notes.js";
import { request } from "./requests.js";
import { announce, count, duration, element, number, setting, show } from "./shown.js";
import { badge, bar, fill, markOrder, sortable, trialLabel, trialLink } from "./tables.js";

const PAGES = [25, 100, 400, 1_000]; // rows that are shown, more after each click
const MOST_ROWS = 1_000; // of one request
const TYPING_MS = 400;
const SETTLING_MS = 250; // after the last change of the rows, the charts follow
const UNFINISHED = ["RUNNING", "WAITING", "PREEMPTED"];
const CHIPS = { all: [], running: UNFINISHED, complete: ["COMPLETE", "DIVERGED"], pruned: ["PRUNED"], failed: ["FAILED"] };
const SELDOM = new Set(["favourite", "left", "cause"]); // columns that are shown if a trial has something there
const HIDDEN_AT_FIRST = new Set(["attempts", "steps a second"]);

const address = new URLSearchParams(location.search);
const order = { sort: address.get("sort") ?? "rank", descending: address.get("descending") === "true" };
const view = {
  where: address.get("where") ?? "", chip: address.get("state") ?? "all",
  hidden: new Set(address.has("hidden") ? address.get("hidden").split(",") : HIDDEN_AT_FIRST),
  metrics: address.get("metrics")?.split(",").filter(Boolean) ?? [],
};
if (!(view.chip in CHIPS)) view.chip = "all";

let here = "";
let sweep = "";
let rows = PAGES[0];
let asked = 0;
let following = null; // the timer of the charts
let known = { columns: [], objective: "value", direction: null, importances: [], running: new Map(), isDriven: true, states: {} };
let changed = () => {};
let shownRows = [];
let readable = ""; // the last filter that the server has read

// Whether the rows are fewer than all trials, by a filter or a state.
export const isFiltered = () => view.where !== "" || view.chip !== "all";
export const filterText = () => view.where;

// The query of the API for the trials that match, in the order of the table.
export function query(more = {}) {
  const wanted = new URLSearchParams({ ...order, ...more });
  if (view.where) wanted.set("where", view.where);
  for (const state of CHIPS[view.chip]) wanted.append("state", state);
  for (const metric of view.metrics) wanted.append("metric", metric);
  return wanted;
}

// Starts the table. `onChange` is called with the rows after the user has changed the order or the filter; `lit` with
// the label of the trial under the pointer, or null.
export function leaderboard(path, id, onChange, lit) {
  here = path;
  sweep = id;
  changed = onChange;
  element("where").value = view.where;
  sortable(element("sort"), order, chosen);
  for (const name of Object.keys(CHIPS)) {
    const chip = document.createElement("button");
    chip.type = "button";
    chip.dataset.chip = name;
    chip.addEventListener("click", () => {
      view.chip = name;
      chosen();
    });
    element("chips").append(chip);
  }
  let timer = null;
  element("where").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => filterBy(element("where").value), TYPING_MS);
  });
  element("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    filterBy(element("where").value);
  });
  element("more").addEventListener("click", () => {
    rows = PAGES.find((size) => size > rows) ?? rows;
    turned();
  });
  element("columns").addEventListener("change", ({ target }) => {
    const { kind, name } = target.dataset;
    if (kind === "metric") view.metrics = target.checked ? [...view.metrics, name] : view.metrics.filter((each) => each !== name);
    else if (target.checked) view.hidden.delete(name);
    else view.hidden.add(name);
    chosen();
  });
  element("csv").addEventListener("click", () => save("csv", "text/csv", asCsv));
  element("json").addEventListener("click", () => save("json", "application/json", asJson));
  const body = element("trials");
  const numberOf = ({ target }) => target.closest?.("tr")?.dataset.trial ?? null;
  body.addEventListener("pointerover", (event) => lit(numberOf(event)));
  body.addEventListener("pointerleave", () => lit(null));
  body.addEventListener("focusin", (event) => lit(numberOf(event)));
  body.addEventListener("click", ({ target }) => {
    if (target.closest("a, button, input") || !getSelection().isCollapsed) return;
    const link = target.closest("tr")?.querySelector("a");
    if (link) location.assign(link.href);
  });
}

// Shows only trials that match a filter.
export function filterBy(where) {
  view.where = where.trim();
  if (element("where").value.trim() !== view.where) element("where").value = view.where;
  return chosen();
}

async function chosen() {
  rows = PAGES[0];
  await turned();
}

function writeAddress() {
  const kept = new URLSearchParams(location.search);
  const put = (name, value, isDefault) => (isDefault ? kept.delete(name) : kept.set(name, value));
  put("sort", order.sort, order.sort === "rank");
  put("descending", order.descending, !order.descending);
  put("where", view.where, !view.where);
  put("state", view.chip, view.chip === "all");
  put("metrics", view.metrics.join(), !view.metrics.length);
  put("hidden", [...view.hidden].join(), [...view.hidden].join() === [...HIDDEN_AT_FIRST].join());
  history.replaceState(null, "", kept.size ? `?${kept}` : location.pathname);
}

async function turned() {
  try {
    await readTrials({});
    writeAddress();
    show("where-problem", "");
    element("where").removeAttribute("aria-invalid");
    announce("page", `Trials: ${element("page").textContent}`);
    clearTimeout(following);
    following = setTimeout(() => changed(shownRows).catch(refused), SETTLING_MS);
  } catch (error) {
    refused(error);
  }
}

function refused(error) {
  show("where-problem", error.message);
  element("where").setAttribute("aria-invalid", "true");
}

// Reads and shows the rows; `news` has what the page has learned of the sweep since: its objective, its running trials ...
export async function readTrials(news) {
  known = { ...known, ...news };
  asked += 1;
  const mine = asked;
  const where = view.where;
  let page;
  try {
    page = await request(`${here}/trials?${query({ limit: Math.min(rows, MOST_ROWS) })}`);
  } catch (error) {
    if (error.parts?.where === "where" && view.where === where) view.where = readable; // what is read next is not refused again
    throw error;
  }
  if (mine !== asked) return shownRows; // the user has meanwhile asked for other rows
  readable = where;
  known.columns = page.columns;
  shownRows = page.trials;
  showChips();
  showRows(page);
  return shownRows;
}

function showChips() {
  const counts = Object.values(known.states).reduce((sum, count) => sum + count, 0);
  for (const chip of element("chips").children) {
    const states = CHIPS[chip.dataset.chip];
    const count = states.length ? states.reduce((sum, state) => sum + (known.states[state] ?? 0), 0) : counts;
    const label = `${chip.dataset.chip} ${count}`;
    if (chip.textContent !== label) chip.textContent = label;
    chip.ariaPressed = String(chip.dataset.chip === view.chip);
  }
}

// The columns that are offered: title, what they sort by, whether they are numbers, and the cell of a row.
function offered() {
  const places = new Map(known.importances.map(({ name }, place) => [name, place]));
  const place = ({ name }) => places.get(name) ?? places.size;
  const parameters = known.columns.filter(({ kind }) => kind === "parameter").toSorted((one, other) => place(one) - place(other));
  const metrics = known.columns.filter(({ kind }) => kind === "metric").map(({ name }) => name);
  const isLess = known.direction === "minimize";
  const running = (trial) => known.running.get(trialLabel(trial));
  const total = (trial) => `${count(trial.step)} of ${count(trial.total_steps)}`;
  return [
    { title: "#", sort: "rank", isNumber: true, isFixed: true, cell: (trial) => trial.rank, plain: (trial) => trial.rank },
    { title: "trial", sort: "number", isFixed: true, cell: (trial) => trialLink(sweep, trialLabel(trial)), plain: trialLabel },
    { title: "favourite", sort: "favourite", startsWithLargest: true, cell: (trial) => (trial.favourite ? favouriteMark() : ""), plain: (trial) => trial.favourite },
    { title: "state", sort: "state", cell: stateCell, plain: (trial) => trial.state },
    { title: known.objective, sort: "value", isNumber: true, startsWithLargest: !isLess, cell: (trial) => number(trial.so_far), plain: (trial) => trial.so_far },
    { title: "last", isNumber: true, cell: (trial) => number(trial.last), plain: (trial) => trial.last },
    { title: "step", sort: "step", isNumber: true, startsWithLargest: true, cell: total, plain: (trial) => trial.step },
    { title: "left", isNumber: true, cell: (trial) => duration(running(trial)?.seconds_left), plain: (trial) => running(trial)?.seconds_left },
    { title: "steps a second", isNumber: true, cell: (trial) => number(running(trial)?.steps_per_second, 3), plain: (trial) => running(trial)?.steps_per_second },
    { title: "attempts", sort: "attempts", isNumber: true, startsWithLargest: true, cell: (trial) => trial.attempts, plain: (trial) => trial.attempts },
    ...parameters.map(({ name, scale }) => ({
      title: name, sort: `params.${name}`, isNumber: scale !== "choice",
      cell: (trial) => (name in trial.params ? setting(trial.params[name]) : ""), plain: (trial) => trial.params[name],
    })),
    ...metrics.map((name) => ({
      title: name, sort: `metrics.${name}`, isNumber: true, isMetric: true,
      cell: (trial) => number(trial.metrics[name]), plain: (trial) => trial.metrics[name],
    })),
    { title: "cause", cell: (trial) => lastLine(trial.cause), plain: (trial) => trial.cause },
  ];
}

const isChosen = ({ title, isMetric }) => (isMetric ? view.metrics.includes(title) : !view.hidden.has(title));
const lastLine = (cause) => (cause ?? "").trim().split("\n").at(-1);

function stateCell(trial) {
  const isLost = trial.state === "RUNNING" && !known.isDriven;
  const cell = badge(isLost ? "INTERRUPTED" : trial.state);
  if (trial.state !== "RUNNING" || isLost) return cell;
  const both = document.createElement("span");
  both.append(cell, " ", bar(trial.step, trial.total_steps, `trial ${trialLabel(trial)}`));
  return both;
}

function showRows(page) {
  const all = offered();
  const isWritten = (column) => !SELDOM.has(column.title) || page.trials.some((trial) => column.plain(trial));
  const columns = all.filter((column) => isChosen(column) && isWritten(column));
  showChooser(all);
  const body = element("trials");
  const head = columns.map(({ title }) => title).join("\n");
  if (element("sort").dataset.head !== head) {
    element("sort").dataset.head = head;
    element("sort").replaceChildren(...columns.map(heading));
    body.replaceChildren();
  }
  markOrder(element("sort"), order);
  fill(body, page.trials, (trial) => trial.key, (trial) => columns.map(({ cell }) => cell(trial)));
  for (const [index, row] of [...body.rows].entries()) {
    row.dataset.trial = trialLabel(page.trials[index]);
    row.dataset.rank = page.trials[index].rank ?? "";
    [...row.cells].forEach((cell, place) => { cell.dataset.title = columns[place].title; });
  }
  const shown = page.trials.length;
  show("page", page.total ? `${shown} of ${page.total}` : isFiltered() ? "no trial matches" : "no trials yet");
  const next = PAGES.find((size) => size > rows);
  element("more").hidden = shown >= page.total || next === undefined;
  show("more", `Show ${Math.min(next ?? 0, page.total) - shown} more`);
  show("narrow", shown < page.total && next === undefined ? "A filter narrows them; CSV and JSON have them all." : "");
}

function heading({ title, sort, isNumber, startsWithLargest }) {
  const cell = document.createElement("th");
  cell.scope = "col";
  if (isNumber) cell.className = "number";
  if (!sort) {
    cell.textContent = title;
    return cell;
  }
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.sort = sort;
  if (startsWithLargest) button.dataset.first = "descending";
  button.textContent = title;
  cell.append(button);
  return cell;
}

function showChooser(all) {
  const choices = all.filter(({ isFixed }) => !isFixed);
  const names = choices.map(({ title }) => title).join("\n");
  const list = element("columns");
  if (list.dataset.names === names) return;
  list.dataset.names = names;
  list.replaceChildren(...choices.map((column) => {
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = isChosen(column);
    box.dataset.name = column.title;
    box.dataset.kind = column.isMetric ? "metric" : "field";
    label.className = "check";
    label.append(box, ` ${column.title}`);
    return label;
  }));
}

// All rows that match, with the shown columns, as a file.
async function save(ending, type, written) {
  show("where-problem", "");
  try {
    const trials = [];
    for (let total = Infinity; trials.length < total;) {
      const page = await request(`${here}/trials?${query({ limit: MOST_ROWS, offset: trials.length })}`);
      if (!page.trials.length) break;
      trials.push(...page.trials);
      total = page.total;
    }
    const columns = offered().filter(isChosen);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([written(columns, trials)], { type }));
    link.download = `${sweep}.${ending}`;
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    show("where-problem", error.message);
  }
}

const named = ({ title }) => (title === "#" ? "rank" : title);

// A text that a spreadsheet would run as a formula begins with an apostrophe.
function csvCell(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  const inert = typeof value === "string" && /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
}

export const asCsv = (columns, trials) => [
  columns.map((column) => csvCell(named(column))), ...trials.map((trial) => columns.map(({ plain }) => csvCell(plain(trial)))),
].map((cells) => `${cells.join(",")}\n`).join("");

const asJson = (columns, trials) => JSON.stringify(
  trials.map((trial) => Object.fromEntries(columns.map((column) => [named(column), column.plain(trial) ?? null]))), null, 1,
);
