// The page of a sweep: its state and progress, what the user may change, and its running trials.

import { analyse } from "./analysis.js";
import { showCurves } from "./curves.js";
import { confirmed } from "./dialogs.js";
import { watch } from "./events.js";
import { followLog } from "./log.js";
import { all, refresher, request, showProblem, signedIn } from "./requests.js";
import { announce, budgetText, duration, element, number, parameters, settled, show, time } from "./shown.js";
import { badge, bar, fill, sortable, trialLabel, trialLink } from "./tables.js";

const SWEEP = document.body.dataset.sweep;
const HERE = `/sweeps/${encodeURIComponent(SWEEP)}`;
const ROWS = 100;
const hasEnded = (state) => state === "COMPLETE" || state === "FAILED";

const order = { sort: "number", descending: true };
let offset = 0;
let asked = 0;
let hasFile = false;
let user = null;

const refresh = refresher(() => all([readSweep(), readLive(), readTrials(), readCurves()]));

async function readSweep() {
  const sweep = await request(HERE);
  element("mlflow").hidden = sweep.mlflow.url === null;
  if (sweep.mlflow.url !== null) element("mlflow").href = sweep.mlflow.url;
  show("owner", sweep.owner ? `${sweep.owner}, class ${sweep.priority_class}, weight ${number(sweep.weight)}` : "");
  const mayChange = user.role === "admin" || (user.role === "member" && sweep.owner === user.name);
  element("actions").hidden = !mayChange;
  offerChanges(sweep);
  if (hasFile) return; // later values would undo what the user types
  hasFile = true;
  show("file", sweep.text);
  element("trials-wanted").value = sweep.progress.wanted;
  element("priority").value = sweep.priority_class;
  element("weight").value = sweep.weight;
}

// Shows the changes that the state of the sweep permits.
function offerChanges({ state, paused, driver, submission, failures }) {
  const isHeld = driver !== null || submission === "QUEUED" || submission === "STARTED";
  const isOver = hasEnded(state) || paused;
  const isLeft = state === "INTERRUPTED" && !paused && !isHeld; // nobody will go on with it
  const hasFailed = hasEnded(state) && Object.keys(failures).length > 0;
  element("stop").hidden = isOver || isLeft || state === "PARKED";
  element("resume").hidden = !paused;
  element("retry").hidden = isHeld || !(isLeft || hasFailed);
  show("retry", isLeft ? "Run again" : "Retry failed trials");
  element("extend").hidden = isHeld || !isOver;
  element("release").hidden = state !== "PARKED";
  show("leaving", hasEnded(state) && isHeld ? "Its driver has yet to leave: it writes the report, and tells MLflow what is left." : "");
}

async function readLive() {
  const { status, running, place, budget, ends_at: endsAt, events } = await request(`${HERE}/live`);
  const { progress } = status;
  const done = settled(progress.states);
  show("state", status.state);
  element("state").dataset.state = status.state;
  show("reason", status.reason);
  element("progress").max = progress.wanted;
  element("progress").value = done;
  show("counts", `${done} of ${progress.wanted}`);
  show("best", progress.best_key ? number(progress.best_value) : "none yet");
  show("best-of", progress.best_key ? `${status.metric} of ${progress.best_key}` : status.metric);
  show("left", duration(progress.seconds_left) || (hasEnded(status.state) ? "none" : "not known yet"));
  show("ends", endsAt === null ? "" : `until ${time(endsAt)}`);
  show("budget", budgetText(budget) || "none");
  show("place", waits(place));
  announce("progress", `${status.state}, ${done} of ${progress.wanted} trials finished, best ${element("best").textContent}`);
  element("running-empty").hidden = running.length > 0;
  fill(element("running"), running, (trial) => trial.label, (trial) => [
    trialLink(SWEEP, trial.label), bar(trial.step, trial.total_steps, `trial ${trial.label}`),
    `${trial.step} of ${trial.total_steps}`, number(trial.value), number(trial.steps_per_second, 3), duration(trial.seconds_left),
  ]);
  fill(element("events"), events, (event) => `${event.at} ${event.what} ${event.trial}`, (event) => [
    time(event.at), event.what, event.trial === null ? "" : trialLink(SWEEP, event.trial), event.detail,
  ]);
}

function waits(place) {
  if (!place) return "";
  const share = `It runs ${place.running} of ${place.wanted} trials that it could; its share is ${place.share}.`;
  if (!place.position) return place.why ?? share;
  const start = place.expected_start === null ? "at an unknown time" : time(place.expected_start);
  return `Number ${place.position} in the queue: ${place.why} Expected to start ${start}.`;
}

async function readTrials() {
  asked += 1;
  const mine = asked;
  const page = await request(`${HERE}/trials?${new URLSearchParams({ ...order, offset, limit: ROWS })}`);
  if (mine !== asked) return; // the user has meanwhile asked for another page
  fill(element("trials"), page.trials, (trial) => trial.key, (trial) => [
    trialLink(SWEEP, trialLabel(trial)), badge(trial.state), number(trial.value), trial.step, trial.attempts,
    parameters(trial.params), trial.cause,
  ]);
  const last = Math.min(offset + ROWS, page.total);
  show("page", page.total ? `${offset + 1} to ${last} of ${page.total}` : "no trials yet");
  element("earlier").disabled = offset === 0;
  element("later").disabled = last >= page.total;
}

async function readCurves() {
  const chosen = element("metric").value;
  await showCurves(await request(`${HERE}/curves?trials=20&points=200${chosen ? `&metric=${encodeURIComponent(chosen)}` : ""}`));
}

async function turned() {
  try {
    await readTrials();
    announce("page", `Trials: ${element("page").textContent}`);
  } catch (error) {
    show("refresh-problem", error.message);
  }
}

// Runs a change of the user, and shows at once what it has done.
const changed = async (action) => {
  const done = await showProblem(action);
  if (done) refresh();
};

sortable(element("sort"), order, () => {
  offset = 0;
  turned();
});
element("earlier").addEventListener("click", () => {
  offset = Math.max(0, offset - ROWS);
  turned();
});
element("later").addEventListener("click", () => {
  offset += ROWS;
  turned();
});
element("metric").addEventListener("change", refresh);
element("stop").addEventListener("click", async () => {
  const question = `Stop ${SWEEP}? Its trials are saved, and it goes on only when somebody runs it again.`;
  if (await confirmed(question, "Stop the sweep")) changed(() => request(`${HERE}/stop`, "POST"));
});
element("resume").addEventListener("click", () => changed(() => request(`${HERE}/resume`, "POST")));
element("retry").addEventListener("click", () => changed(() => request(`${HERE}/retry`, "POST")));
element("release").addEventListener("click", () => changed(() => request(`${HERE}/release`, "POST")));
element("extend").addEventListener("submit", (event) => {
  event.preventDefault();
  changed(() => request(`${HERE}/extend`, "POST", { trials: element("trials-wanted").valueAsNumber }));
});
element("move").addEventListener("submit", (event) => {
  event.preventDefault();
  const body = { priority_class: element("priority").value, weight: element("weight").valueAsNumber };
  changed(() => request(HERE, "PATCH", body));
});

analyse(HERE);
followLog(`${HERE}/log`);

user = await signedIn();
watch({ sweep: SWEEP }, refresh);
