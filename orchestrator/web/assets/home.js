// The list of all sweeps, the running ones first; the queue, if a sweep waits; and the choice of sweeps to compare.

import { draw, extent, ratio } from "./drawing.js";
import { watch } from "./events.js";
import { favouriteMark, tagChip } from "./notes.js";
import { all, refresher, request, signedIn } from "./requests.js";
import { ago, announce, duration, element, minute, number, settled, show } from "./shown.js";
import { anchor, badge, bar, fill, sortable, sweepAddress } from "./tables.js";

const ROWS = 50;
const MOST_RUNNING = 50;
const MOST_LETTERS = 32; // of a name; the middle of a longer one is left out
const MOST_DRAWN = 10; // running sweeps with a curve of their best values
const SPARK = { width: 72, height: 16, edge: 2 };
const OVER = new Set(["COMPLETE", "FAILED", "INTERRUPTED"]);

const order = { sort: "created_at", descending: true };
const cursors = [null]; // of the pages up to the one that is shown
const compared = new Set();
let user = null;
let list = { sweeps: [], total: 0, next: null };
let histories = new Map(); // best values so far by running sweep
let asked = 0;

const refresh = refresher(() => all([readQueue(), readList()]));

async function readQueue() {
  const waiting = (await request("/queue")).queue.filter((entry) => entry.position !== null);
  element("queue-section").hidden = waiting.length === 0;
  fill(element("queue"), waiting, (entry) => entry.sweep, (entry) => [
    entry.position, shortLink(entry.sweep), entry.owner, entry.priority_class,
    entry.expected_start === null ? "unknown" : minute(entry.expected_start), entry.why,
  ]);
}

async function readList() {
  asked += 1;
  const mine = asked;
  const [found, running] = await Promise.all([request(`/sweeps?${query()}`), readRunning()]);
  if (mine !== asked) return; // the user has meanwhile asked for another page
  const first = new Set(running.map(({ id }) => id));
  const shown = [...running, ...found.sweeps].filter(({ state: now }) => now === "RUNNING").slice(0, MOST_DRAWN);
  histories = new Map(await Promise.all(shown.map(async ({ id }) => [id, (await request(`/sweeps/${encodeURIComponent(id)}/live`)).best_values])));
  list = { ...found, sweeps: [...running, ...found.sweeps.filter(({ id }) => !first.has(id))] };
  paintList(found.sweeps.length);
}

// The newest running sweeps, which the first page in the usual order shows before all others.
async function readRunning() {
  const { state = "RUNNING", ...others } = Object.fromEntries(filters());
  const isUsual = order.sort === "created_at" && order.descending && cursors.length === 1;
  if (!isUsual || state !== "RUNNING") return [];
  return (await request(`/sweeps?${new URLSearchParams({ ...others, state, limit: MOST_RUNNING })}`)).sweeps;
}

function query() {
  const chosen = new URLSearchParams({ ...order, limit: ROWS });
  for (const [name, value] of filters()) chosen.set(name, value);
  const after = cursors.at(-1);
  if (after !== null) chosen.set("after", after);
  return chosen;
}

function filters() {
  const chosen = [...new FormData(element("filter"))].filter(([name, value]) => value !== "" && name !== "mine");
  return element("filter").elements.mine.checked ? [...chosen.filter(([name]) => name !== "owner"), ["owner", user.name]] : chosen;
}

function paintList(count) {
  fill(element("sweeps"), list.sweeps, (sweep) => sweep.id, (sweep) => {
    const isOver = OVER.has(sweep.state);
    return [
      choice(sweep.id), named(sweep), state(sweep), trials(sweep), best(sweep), isOver ? "" : left(sweep.time_left),
      duration(sweep.cost?.elapsed_seconds), duration(sweep.cost?.compute_seconds), sweep.owner, ago(sweep.created_at),
    ];
  });
  const first = (cursors.length - 1) * ROWS;
  show("page", list.total ? `${first + 1} to ${first + count} of ${list.total}` : "none");
  element("sweeps-empty").hidden = list.sweeps.length > 0;
  element("earlier").disabled = cursors.length === 1;
  element("later").disabled = list.next === null;
  const running = list.sweeps.filter((sweep) => sweep.state === "RUNNING").length;
  document.title = running ? `● ${running} running – Sweeps` : "Sweeps";
  offerComparison();
}

function shortLink(id) {
  const half = (MOST_LETTERS - 1) / 2;
  const link = anchor(sweepAddress(id), id.length > MOST_LETTERS ? `${id.slice(0, Math.ceil(half))}…${id.slice(-Math.floor(half))}` : id);
  link.title = id;
  return link;
}

// The name with its mark as a favourite and its tags.
function named({ id, favourite, tags }) {
  const shown = document.createElement("span");
  shown.append(shortLink(id));
  if (favourite) shown.append(favouriteMark());
  for (const tag of tags) shown.append(" ", tagChip(tag));
  return shown;
}

function choice(id) {
  const box = document.createElement("input");
  box.type = "checkbox";
  box.dataset.sweep = id;
  box.setAttribute("aria-label", `compare ${id}`);
  box.toggleAttribute("checked", compared.has(id));
  return box;
}

function state(sweep) {
  const text = sweep.reason ?? (sweep.state === "RUNNING" && sweep.state_text !== "running" ? sweep.state_text : "");
  if (!text) return badge(sweep.state);
  const shown = document.createElement("span");
  const reason = document.createElement("span");
  reason.className = "reason";
  reason.textContent = text.trim().split("\n").at(-1);
  reason.title = text;
  shown.append(badge(sweep.state), reason);
  return shown;
}

function trials(sweep) {
  const done = settled(sweep.trials);
  const limit = sweep.cost?.trials_limit ?? null;
  const others = [["PRUNED", "pruned"], ["FAILED", "failed"]]
    .filter(([name]) => sweep.trials[name]).map(([name, text]) => `${sweep.trials[name]} ${text}`);
  const text = [limit === null ? String(done) : `${done} of ${limit}`, ...others].join(", ");
  if (OVER.has(sweep.state) || limit === null) return text;
  const shown = document.createElement("span");
  shown.append(bar(done, limit, `trials of ${sweep.id}`), ` ${text}`);
  return shown;
}

// The best value, with its metric and the trial that has it.
function best(sweep) {
  if (sweep.best_value === null) return sweep.on_front ? `${sweep.on_front} on the Pareto front` : "";
  const of = [sweep.chosen, sweep.best].find((trial) => trial?.key === sweep.best_trial) ?? null;
  const shown = document.createElement("span");
  const metric = document.createElement("span");
  metric.className = "reason";
  metric.textContent = of === null ? sweep.metric : `${sweep.metric}, trial ${of.label}${of.state === "RUNNING" ? ", running" : ""}`;
  shown.append(number(sweep.best_value), ...spark(histories.get(sweep.id) ?? []), metric);
  return shown;
}

// The best value over trials as a small line, which only adds to the number.
function spark(values) {
  const [low, high] = extent(values);
  if (values.length < 2 || low === high) return [];
  const { width, height, edge } = SPARK;
  const along = (index) => edge + (index / (values.length - 1)) * (width - 2 * edge);
  const up = (value) => height - edge - ratio(value, [low, high]) * (height - 2 * edge);
  const picture = draw("svg", { class: "spark", width, height, "aria-hidden": "true" });
  picture.append(draw("polyline", { points: values.map((value, index) => `${along(index).toFixed(1)},${up(value).toFixed(1)}`).join(" ") }));
  return [" ", picture];
}

function left(estimate) {
  if (estimate === null) return "";
  const shown = document.createElement("span");
  shown.textContent = `about ${duration(estimate.likely)}`;
  shown.title = `${duration(estimate.low)} to ${duration(estimate.high)}, ${estimate.basis}`;
  return shown;
}

function offerComparison() {
  const count = compared.size;
  element("compare").disabled = count < 2;
  show("compare-hint", count === 0 ? "Choose two or more sweeps." : `${count} chosen`);
}

const compare = () => location.assign(`/compare?sweeps=${[...compared].map(encodeURIComponent).join(",")}`);

// Another order or filter begins at the first page, and stays in the address for a link.
async function chosen() {
  cursors.splice(1);
  const mine = ["mine", element("filter").elements.mine.checked ? "on" : "off"];
  const fields = [...new FormData(element("filter"))].filter(([name, value]) => value !== "" && name !== "mine");
  history.replaceState(null, "", `?${new URLSearchParams([...fields, mine])}`);
  await turned();
}

async function turned() {
  try {
    await readList();
    announce("page", `Sweeps: ${element("page").textContent}`);
  } catch (error) {
    show("refresh-problem", error.message);
  }
}

element("filter").addEventListener("submit", (event) => event.preventDefault());
sortable(element("sort"), order, chosen);
element("earlier").addEventListener("click", () => {
  cursors.pop();
  turned();
});
element("later").addEventListener("click", () => {
  cursors.push(list.next);
  turned();
});
element("sweeps").addEventListener("change", ({ target }) => {
  if (target.checked) compared.add(target.dataset.sweep);
  else compared.delete(target.dataset.sweep);
  offerComparison();
});
element("compare").addEventListener("click", compare);

user = await signedIn();
const given = new URLSearchParams(location.search);
for (const [name, value] of given) {
  const field = element("filter").elements[name];
  if (field?.type === "checkbox" && name !== "mine") field.checked = field.value === value;
  else if (field && name !== "mine") field.value = value;
}
element("filter").elements.mine.checked = given.has("mine") ? given.get("mine") === "on" : user.role === "member" && !given.has("owner");
element("filter").addEventListener("input", chosen);
watch({ listed: true }, refresh);
