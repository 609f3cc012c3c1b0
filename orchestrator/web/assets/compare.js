// Sweeps side by side: their best values over trials or hours, and the results and differences of `compare`.

import { chart } from "./charts.js";
import { watch } from "./events.js";
import { all, refresher, request, showProblem, signedIn } from "./requests.js";
import { duration, element, number, plural, settled, show } from "./shown.js";
import { badge, fill, sweepAddress, sweepLink } from "./tables.js";

const KINDS = 8; // classes of lines, each with its own colour and dashes
const SWEEPS = [...new Set((new URLSearchParams(location.search).get("sweeps") ?? "").split(",").filter(Boolean))];
const LIVE = new Set(["best", "elapsed", "compute", "state"]); // columns of the upper table, which is newer
const addressOf = (sweeps) => `/compare?sweeps=${sweeps.map(encodeURIComponent).join(",")}`;

const refresh = refresher(() => all([readHistories(), showProblem(readVerdicts)]));

async function readHistories() {
  const found = await Promise.all(SWEEPS.map((sweep) => request(`/sweeps/${encodeURIComponent(sweep)}/live`)));
  fill(element("sweeps"), found, ({ status }) => status.id, ({ status }) => [
    sweepLink(status.id), badge(status.state), best(status), status.metric, settled(status.trials),
    duration(status.cost?.elapsed_seconds), duration(status.cost?.compute_seconds), leaveOut(status.id),
  ]);
  const metric = found.find(({ status }) => status.metric !== null)?.status.metric ?? "";
  const lines = found.map(({ status, history }, index) => ({ status, history, kind: `running run-${index % KINDS}` }));
  const drawn = lines.filter(({ status, history }) => status.metric === metric && history.length);
  const without = lines.filter((line) => !drawn.includes(line)).map(({ status }) => status.id);
  show("histories-without", without.length ? `Without a value of ${metric}: ${without.join(", ")}` : "");
  const isByTrial = element("axis").value === "trials";
  chart(element("histories"), element("histories-legend"), {
    lines: drawn.map(({ status, history, kind }) => ({ name: status.id, key: status.id, kind, points: stairs(status, history, isByTrial) })),
    legend: drawn.map(({ status, history, kind }) => [kind, `${status.id}: ${number(history.at(-1).best)} after ${plural(history.length, "trial")}`]),
    across: isByTrial ? "trials, in the order of their ends" : "hours since the start", down: metric, isWhole: isByTrial,
    pick: (sweep) => location.assign(sweepAddress(sweep)), readout: "histories-at",
  });
}

// The value that stands for a sweep, as `compare` writes it: with its trial if that has not reached its last step.
function best({ best_value: value, best_trial: key, best: so_far, chosen }) {
  const { label, state } = [chosen, so_far].find((trial) => trial?.key === key) ?? {};
  return state === undefined || state === "COMPLETE" ? number(value) : `${number(value)} (trial ${label}, ${state.toLowerCase()})`;
}

// The best value so far as steps: over trials, or over the hours at which they ended.
function stairs({ created_at: start }, history, isByTrial) {
  const ends = history.filter(({ at }) => isByTrial || at !== null)
    .map(({ place, at, best }) => [isByTrial ? place : (at - start) / 3_600, best]);
  return ends.flatMap(([place, best], index) => (
    index && ends[index - 1][1] !== best ? [[place, ends[index - 1][1]], [place, best]] : [[place, best]]
  ));
}

function leaveOut(sweep) {
  const link = document.createElement("a");
  link.href = addressOf(SWEEPS.filter((other) => other !== sweep));
  link.textContent = "Leave out";
  link.setAttribute("aria-label", `Leave out ${sweep}`);
  return link;
}

async function readVerdicts() {
  const { tables } = await request(`/compare?${new URLSearchParams(SWEEPS.map((sweep) => ["sweep", sweep]))}`);
  const shown = JSON.stringify(tables);
  if (element("verdicts").dataset.shown === shown) return; // keeps focus and selection
  element("verdicts").dataset.shown = shown;
  element("verdicts").replaceChildren(...tables.flatMap(titled));
}

function titled({ title, header, rows, sentences }) {
  const shown = header.map((_, index) => index).filter((index) => title !== "Sweeps" || !LIVE.has(header[index]));
  const heading = document.createElement("h2");
  heading.textContent = title;
  const wide = document.createElement("div");
  wide.className = "wide";
  const table = document.createElement("table");
  table.setAttribute("aria-label", title);
  const head = table.createTHead().insertRow();
  for (const name of shown.map((index) => header[index])) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    head.append(cell);
  }
  fill(table.createTBody(), rows.map((row, index) => ({ row, index })), ({ index }) => index, ({ row }) => shown.map((cell) => row[cell]));
  wide.append(table);
  const below = sentences.map((sentence) => {
    const line = document.createElement("p");
    line.textContent = sentence;
    return line;
  });
  return [heading, ...(rows.length ? [wide] : []), ...below];
}

element("axis").addEventListener("change", refresh);
await signedIn();
document.title = `Comparison of ${plural(SWEEPS.length, "sweep")}`;
element("compare-empty").hidden = SWEEPS.length > 0;
if (SWEEPS.length) watch({ listed: true }, refresh);
