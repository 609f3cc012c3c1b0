// The page of a sweep: its state and progress, what the user may change, and its running trials.

import { analyse } from "./analysis.js";
import { showCurves } from "./curves.js";
import { confirmed } from "./dialogs.js";
import { watch } from "./events.js";
import { followLog } from "./log.js";
import { all, refresher, request, showProblem, signedIn } from "./requests.js";
import { announce, budgetText, duration, element, number, parameters, plural, settled, show, time } from "./shown.js";
import { badge, bar, fill, sortable, trialLabel, trialLink } from "./tables.js";

const SWEEP = document.body.dataset.sweep;
const HERE = `/sweeps/${encodeURIComponent(SWEEP)}`;
const ROWS = 100;
const MOST_CAUSES = 3;
const hasEnded = (state) => state === "COMPLETE" || state === "FAILED";

const order = { sort: "number", descending: true };
let offset = 0;
let asked = 0;
let hasFile = false;
let user = null;
let direction = null;
let isDriven = true; // whether trials in state RUNNING have a driver

// Each tells what the next one needs: which values are better, and whether trials have a driver.
const refresh = refresher(() => all([readSweep().then(readLive).then(readTrials), readCurves()]));

async function readSweep() {
  const sweep = await request(HERE);
  direction = sweep.direction;
  show("starts", sweep.starts > 1 ? `Its driver was started ${sweep.starts} times; the log below has how each one ended.` : "");
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
  element("resume").hidden = !paused && state !== "PARKED";
  element("retry").hidden = isHeld || !(isLeft || hasFailed);
  show("retry", isLeft ? "Run again" : "Retry failed trials");
  element("extend").hidden = isHeld || !isOver;
  show("leaving", hasEnded(state) && isHeld ? "Its driver has yet to leave: it writes the report, and tells MLflow what is left." : "");
}

async function readLive() {
  const { status, running, place, budget, ends_at: endsAt, events } = await request(`${HERE}/live`);
  const { progress } = status;
  const done = settled(progress.states);
  show("state", status.state);
  element("state").dataset.state = status.state;
  show("reason", status.state === "PARKED" ? `${status.reason} Release tries again; the log below has the trace.` : status.reason);
  showFailures(status);
  isDriven = status.state !== "PARKED";
  element("progress").max = progress.wanted;
  element("progress").value = done;
  show("counts", `${done} of ${progress.wanted}`);
  const best = bestOf(progress, isDriven ? running : []);
  if (status.on_front === null) {
    show("best", best.value === null ? "none yet" : number(best.value));
    show("best-of", best.of === null ? status.metric : `${status.metric} of ${best.of}`);
  } else {
    show("best", plural(status.on_front, "trial"));
    show("best-of", "on the Pareto front; the file prefers no objective");
  }
  show("left", duration(progress.seconds_left) || untold(status.state));
  show("ends", endsAt === null ? "" : `until ${time(endsAt)}`);
  show("budget", budgetText(budget) || "none");
  show("place", status.reason && place?.why?.endsWith(status.reason) ? "" : waits(place));
  announce("progress", `${status.state}, ${done} of ${progress.wanted} trials finished, best ${element("best").textContent}`);
  element("running-empty").hidden = isDriven && running.length > 0;
  fill(element("running"), isDriven ? running : [], (trial) => trial.label, (trial) => [
    trialLink(SWEEP, trial.label), bar(trial.step, trial.total_steps, `trial ${trial.label}`),
    `${trial.step} of ${trial.total_steps}`, number(trial.value), number(trial.steps_per_second, 3), duration(trial.seconds_left),
  ]);
  fill(element("events"), events, (event) => `${event.at} ${event.what} ${event.trial}`, (event) => [
    time(event.at), event.what, event.trial === null ? "" : trialLink(SWEEP, event.trial), event.detail,
  ]);
}

// The best trial that has ended, or one that still runs if its last value is better.
function bestOf({ best_key: key, best_value: value }, running) {
  const isBetter = (one, other) => other === null || (direction === "minimize" ? one < other : one > other);
  return running.reduce((best, trial) => (
    direction !== null && Number.isFinite(trial.value) && isBetter(trial.value, best.value)
      ? { value: trial.value, of: `trial ${trial.label}, which runs: step ${trial.step} of ${trial.total_steps}` }
      : best
  ), { value: key ? value : null, of: key });
}

// Says why trials have failed, by cause, the most frequent one first.
function showFailures({ failures, reason, trials }) {
  const causes = Object.entries(failures).toSorted(([, one], [, other]) => other - one);
  const lasts = causes.map(([cause, count]) => [cause.trim().split("\n").at(-1), count]);
  const untoldCauses = lasts.filter(([last]) => !reason?.includes(last));
  const total = settled(trials);
  element("failures").replaceChildren(...untoldCauses.slice(0, MOST_CAUSES).map(([last, count]) => {
    const item = document.createElement("li");
    item.textContent = `${count} of ${plural(total, "trial")} failed: ${last}`;
    return item;
  }));
  show("more-failures", untoldCauses.length > MOST_CAUSES ? `and ${plural(untoldCauses.length - MOST_CAUSES, "other cause")}` : "");
}

const untold = (state) => (hasEnded(state) ? "none" : state === "INTERRUPTED" ? "not running" : "not known yet");

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
    trialLink(SWEEP, trialLabel(trial)), badge(trial.state === "RUNNING" && !isDriven ? "INTERRUPTED" : trial.state), number(trial.value), trial.step, trial.attempts,
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
  const question = `Stop ${SWEEP}? Its trials are saved, and it goes on only when somebody resumes it.`;
  if (await confirmed(question, "Stop the sweep")) changed(() => request(`${HERE}/stop`, "POST"));
});
element("resume").addEventListener("click", () => changed(() => request(`${HERE}/resume`, "POST")));
element("retry").addEventListener("click", () => changed(() => request(`${HERE}/retry`, "POST")));
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
