// The queue, and the list of all sweeps.

import { watch } from "./events.js";
import { all, refresher, request, signedIn } from "./requests.js";
import { announce, element, minute, number, settled, show } from "./shown.js";
import { badge, bar, fill, sortable, sweepLink } from "./tables.js";

const ROWS = 50;
const DETAILS_MS = 10_000;
const MOST_DETAILS = 20;
const FINISHED = new Set(["COMPLETE", "FAILED", "INTERRUPTED"]);

const order = { sort: "created_at", descending: true };
const cursors = [null]; // of the pages up to the one that is shown
const details = new Map(); // progress and weight of sweeps that run or wait
let queue = [];
let list = { sweeps: [], total: 0, next: null };
let asked = 0;

const refresh = refresher(() => all([readQueue(), readList()]));
const refreshDetails = refresher(readDetails, DETAILS_MS);

async function readQueue() {
  ({ queue } = await request("/queue"));
  paintQueue();
}

async function readList() {
  asked += 1;
  const mine = asked;
  const found = await request(`/sweeps?${query()}`);
  if (mine !== asked) return; // the user has meanwhile asked for another page
  list = found;
  paintList();
  refreshDetails();
}

function query() {
  const chosen = new URLSearchParams({ ...order, limit: ROWS });
  for (const [name, value] of filters()) chosen.set(name, value);
  const after = cursors.at(-1);
  if (after !== null) chosen.set("after", after);
  return chosen;
}

const filters = () => [...new FormData(element("filter"))].filter(([, value]) => value !== "");

async function readDetails() {
  const active = list.sweeps.filter((sweep) => !FINISHED.has(sweep.state)).map((sweep) => sweep.id);
  const wanted = [...new Set([...queue.map((entry) => entry.sweep), ...active])].slice(0, MOST_DETAILS);
  await all(wanted.map(async (sweep) => {
    const path = `/sweeps/${encodeURIComponent(sweep)}`;
    const [{ status, ends_at: endsAt }, { weight }] = await Promise.all([request(`${path}/live`), request(path)]);
    details.set(sweep, { progress: status.progress, endsAt, weight });
  }));
  paintQueue();
  paintList();
}

function paintQueue() {
  element("queue-empty").hidden = queue.length > 0;
  fill(element("queue"), queue, (entry) => entry.sweep, (entry) => [
    entry.position, sweepLink(entry.sweep), entry.owner, entry.priority_class, number(details.get(entry.sweep)?.weight),
    entry.share, entry.running, entry.wanted, start(entry), entry.why,
  ]);
}

function start(entry) {
  if (!entry.position) return null;
  return entry.expected_start === null ? "unknown" : minute(entry.expected_start);
}

function paintList() {
  fill(element("sweeps"), list.sweeps, (sweep) => sweep.id, (sweep) => {
    const { progress, endsAt } = details.get(sweep.id) ?? {};
    return [
      sweepLink(sweep.id), state(sweep), sweep.task, sweep.owner, trials(sweep, progress), number(sweep.best_value),
      sweep.best_value === null ? "" : sweep.metric, minute(sweep.created_at), FINISHED.has(sweep.state) ? "" : minute(endsAt),
    ];
  });
  const first = (cursors.length - 1) * ROWS;
  const page = list.total ? `${first + 1} to ${first + list.sweeps.length} of ${list.total}` : "none";
  show("page", page);
  element("sweeps-empty").hidden = list.sweeps.length > 0;
  element("earlier").disabled = cursors.length === 1;
  element("later").disabled = list.next === null;
}

function state(sweep) {
  if (!sweep.reason) return badge(sweep.state);
  const shown = document.createElement("span");
  const reason = document.createElement("span");
  reason.className = "reason";
  reason.textContent = sweep.reason;
  shown.append(badge(sweep.state), reason);
  return shown;
}

function trials(sweep, progress) {
  if (!progress || FINISHED.has(sweep.state)) {
    const failed = sweep.trials.FAILED ? ` (${sweep.trials.FAILED} failed)` : "";
    return `${settled(sweep.trials)}${failed}`;
  }
  const done = settled(sweep.trials);
  const shown = document.createElement("span");
  shown.append(bar(done, progress.wanted, `trials of ${sweep.id}`), ` ${done} of ${progress.wanted}`);
  return shown;
}

// Another order or filter begins at the first page, and stays in the address for a link.
async function chosen() {
  cursors.splice(1);
  history.replaceState(null, "", `?${new URLSearchParams(filters())}`);
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

for (const [name, value] of new URLSearchParams(location.search)) {
  const field = element("filter").elements[name];
  if (field) field.value = value;
}
element("filter").addEventListener("input", chosen);
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

await signedIn();
watch({ listed: true }, refresh);
