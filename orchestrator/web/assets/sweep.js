// The page of a sweep: its answer, state and progress, its curves and trials, and what the user may change.

import { analyse, nameObjective } from "./analysis.js";
import { lightCurve, showCurves } from "./curves.js";
import { confirmed } from "./dialogs.js";
import { watch } from "./events.js";
import { showHistory } from "./history.js";
import { isFiltered, leaderboard, readTrials } from "./leaderboard.js";
import { followLog } from "./log.js";
import { notes } from "./notes.js";
import { owns, refresher, request, showProblem, signedIn } from "./requests.js";
import { announce, brief, count, duration, element, number, parameters, plural, setting, settled, show, time } from "./shown.js";
import { copyButton, fill, trialLink } from "./tables.js";

const SWEEP = document.body.dataset.sweep;
const HERE = `/sweeps/${encodeURIComponent(SWEEP)}`;
const MOST_CAUSES = 3;
const MOST_CURVES = 20;
const MOST_POINTS = 200;
const MOST_TRIALS_NAMED = 5;
const MATTERS_MS = 10_000;
const hasEnded = (state) => state === "COMPLETE" || state === "FAILED";

let hasFile = false;
let user = null;
let metric = null; // objective
let endedTrials = -1; // trials that had ended when the analysis was read
let mattersDue = 0; // when it may be read again
let rows = []; // of the leaderboard
const curveView = { scale: null, axis: "step", smoothing: 0, isChosen: false };

const refresh = refresher(() => readLive().then(readRows).then(readCurves));
const showNote = notes(`${HERE}/note`);
const openTrial = (label) => location.assign(trialLink(SWEEP, String(label)).href);

async function readLive() {
  const found = await request(`${HERE}/live`);
  const { status } = found;
  metric = status.metric;
  nameObjective(status.direction === null ? null : metric); // a queued sweep has nothing to analyse
  const isDriven = status.state !== "PARKED"; // whether trials in state RUNNING have a driver
  showHead(status, found.place);
  showFacts(found);
  showFailures(status);
  const result = showResult(status);
  showHistory(found.history, status.improvement, metric, openTrial);
  fill(element("events"), found.events, (event) => `${event.at} ${event.what} ${event.trial}`, (event) => [
    time(event.at), event.what, event.trial === null ? "" : trialLink(SWEEP, event.trial), event.detail,
  ]);
  const ended = settled(status.progress.states);
  if (ended !== endedTrials && Date.now() >= mattersDue) {
    endedTrials = ended;
    mattersDue = Date.now() + MATTERS_MS;
    readMatters();
  }
  await result;
  return {
    objective: metric ?? "value", direction: status.direction, isDriven, states: status.progress.states,
    running: new Map(isDriven ? found.running.map((trial) => [trial.label, trial]) : []),
  };
}

function showHead(status, place) {
  const { state } = status;
  show("state", state);
  element("state").dataset.state = state;
  const isPlain = status.state_text === state.toLowerCase();
  show("state-text", isPlain ? "" : status.state_text);
  const isSaid = status.failed.some(({ message }) => status.reason?.includes(message)); // in the banner
  show("reason", state === "PARKED" ? `${status.reason} Release tries again; the log has the trace.` : isSaid ? "" : status.reason);
  show("place", status.reason && place?.why?.endsWith(status.reason) ? "" : waits(place));
  const [latest] = status.restarts;
  element("crashes").hidden = !latest && state !== "PARKED";
  show("restarts", latest ? `${latest.parked ? "Parked" : `Restarted ${plural(status.restarts.length, "time")}, last`} ${time(latest.at)}: ${latest.cause}` : "");
  element("mlflow").hidden = status.mlflow.url === null;
  if (status.mlflow.url !== null) element("mlflow").href = status.mlflow.url;
  const mayChange = owns(user, status.owner);
  element("actions").hidden = !mayChange;
  showNote(status.note, mayChange);
  offerChanges(status);
  showCommands(status.again);
  const done = settled(status.progress.states);
  const best = status.best === null ? "" : ` ${number(status.best.value)}`;
  document.title = `${state === "RUNNING" ? "● " : ""}${done}/${status.progress.wanted}${best} ${SWEEP}`;
  if (hasFile) return; // later values would undo what the user types
  hasFile = true;
  show("file", status.text);
  element("trials-wanted").value = status.progress.wanted;
  element("priority").value = status.priority_class;
  element("weight").value = status.weight;
}

// Shows the changes that the state of the sweep permits.
function offerChanges({ state, paused, driver, submission, failed, shelf }) {
  const isHeld = driver !== null || submission === "QUEUED" || submission === "STARTED";
  const isOver = hasEnded(state) || paused;
  const isLeft = state === "INTERRUPTED" && !paused && !isHeld; // nothing will continue it
  const hasFailed = hasEnded(state) && failed.length > 0;
  element("stop").hidden = isOver || isLeft || state === "PARKED";
  element("resume").hidden = !paused && state !== "PARKED";
  show("resume", state === "PARKED" ? "Release" : "Resume");
  element("retry").hidden = isHeld || !(isLeft || hasFailed);
  show("retry", isLeft ? "Run again" : "Retry failed trials");
  element("extend").hidden = isHeld || !isOver;
  element("archive").hidden = isHeld;
  element("archive").value = shelf === null ? "archived" : "";
  show("archive", { archived: "List again", deleted: "Undo the deletion" }[shelf] ?? "Archive");
  show("leaving", hasEnded(state) && isHeld ? "Its driver has yet to leave: it writes the report, and tells MLflow what is left." : "");
}

function showCommands({ run, resume, export: exported, python }) {
  const texts = { "Copy command": run, "Copy resume": resume, "Copy export": exported, "Copy Python": python };
  const known = Object.entries(texts).filter(([, text]) => text);
  const place = element("commands");
  const wanted = JSON.stringify(known);
  if (place.dataset.shown === wanted) return;
  place.dataset.shown = wanted;
  place.replaceChildren(...known.map(([label, text]) => copyButton(label, text)));
}

function showFacts({ status, budget, ends_at: endsAt }) {
  const { progress, best, cost, time_left: left, state } = status;
  const done = settled(progress.states);
  element("progress").max = progress.wanted;
  element("progress").value = done;
  show("counts", `${done} of ${progress.wanted}`);
  const named = { running: ["RUNNING"], waiting: ["WAITING", "PREEMPTED"], complete: ["COMPLETE", "DIVERGED"], pruned: ["PRUNED"], failed: ["FAILED"] };
  const counts = Object.entries(named).map(([name, states]) => [states.reduce((sum, one) => sum + (progress.states[one] ?? 0), 0), name]);
  show("states", counts.filter(([count, name]) => count || name === "failed").map(([count, name]) => `${count} ${name}`).join(" · "));
  if (status.on_front === null) {
    show("best", best === null ? (hasEnded(state) ? "none" : "none yet") : number(best.value));
    show("best-of", best === null ? status.metric : `${status.metric}, trial ${best.label}, ${standing(best)}`);
    show("best-settings", best === null ? "" : parameters(best.params));
  } else {
    show("best", plural(status.on_front, "trial"));
    show("best-of", "on the Pareto front; the file prefers no objective");
    show("best-settings", "");
  }
  element("left-part").hidden = hasEnded(state);
  show("left", left === null ? unknown(state) : `about ${duration(left.likely)}`);
  show("left-basis", left === null ? "" : `${duration(left.low)} to ${duration(left.high)}, ${left.basis}`);
  show("ends", endsAt === null ? "" : `until ${time(endsAt)}`);
  showCost(cost, status);
  show("budget", stops(budget));
  announce("progress", `${state}, ${done} of ${progress.wanted} trials ended, best ${element("best").textContent}`);
}

function standing({ state, step, total_steps: total, best_step: at }) {
  const where = at === null ? "" : `, best at step ${count(at)}`;
  if (state === "RUNNING") return `running, step ${count(step)} of ${count(total)}${where}`;
  if (state === "PRUNED") return `pruned at step ${count(step)} of ${count(total)}${where}`;
  return `${state.toLowerCase()}${where}`;
}

function showCost(cost, { owner, priority_class: priority, weight }) {
  const limit = cost?.elapsed_limit_seconds ?? null;
  show("elapsed", cost === null ? "nothing yet" : `${duration(cost.elapsed_seconds)} elapsed${limit === null ? "" : ` of ${duration(limit)}`}`);
  element("elapsed-part").hidden = limit === null;
  if (limit !== null) {
    element("elapsed-bar").max = limit;
    element("elapsed-bar").value = cost.elapsed_seconds;
  }
  const gpus = cost === null || (cost.gpu_hours === 0 && cost.gpu_hours_limit === null) ? ""
    : ` · ${brief(cost.gpu_hours)}${cost.gpu_hours_limit === null ? "" : ` of ${brief(cost.gpu_hours_limit)}`} GPU-hours`;
  show("compute", cost === null ? "" : `${duration(cost.compute_seconds)} compute · ${brief(cost.core_hours)} core-hours${gpus}`);
  show("owner", owner ? `${owner}, class ${priority}, weight ${brief(weight)}` : "");
}

// What ends the search before its trials and hours are used.
function stops(budget) {
  const target = budget?.target == null ? "" : `until ${brief(budget.target)}`;
  const patience = budget?.no_improvement == null ? "" : `until ${plural(budget.no_improvement, "trial")} without an improvement`;
  return [target, patience].filter(Boolean).join(", ");
}

// Says why trials have failed, by cause, the most frequent one first.
function showFailures({ failed, progress, id }) {
  const total = settled(progress.states);
  element("failures-banner").hidden = !failed.length;
  const items = failed.slice(0, MOST_CAUSES).map((group) => {
    const item = document.createElement("li");
    const where = group.file === null ? "" : ` (${group.file}${group.line === null ? "" : `, line ${group.line}`})`;
    const text = document.createElement("strong");
    text.textContent = `${group.count} of ${plural(total, "trial")} failed: ${messageOf(group)}${where}`;
    const named = group.trials.slice(0, MOST_TRIALS_NAMED).flatMap((label) => [" ", trialLink(id, label)]);
    item.append(text, document.createElement("br"), `${group.next_step} Logs of trials`, ...named, group.trials.length > MOST_TRIALS_NAMED ? " ..." : "");
    return item;
  });
  const wanted = items.map((item) => item.outerHTML).join("");
  if (element("failures").dataset.shown !== wanted) {
    element("failures").dataset.shown = wanted;
    element("failures").replaceChildren(...items);
  }
  show("more-failures", failed.length > MOST_CAUSES ? `and ${plural(failed.length - MOST_CAUSES, "other cause")}` : "");
}

// An exception by itself, and any other failure with its kind, such as `out of memory`.
const messageOf = ({ error, cause, message }) => (error !== null || cause === "error" || cause === message ? message : `${cause}: ${message}`);

// Shows the answer of a finished sweep. Its sentences are read once, and again when trials have ended.
async function showResult({ state, chosen, progress, again }) {
  const isShown = hasEnded(state) && chosen !== null;
  element("result").hidden = !isShown;
  element("best-part").hidden = isShown;
  if (!isShown) return;
  fill(element("result-settings"), Object.entries(chosen.params), ([name]) => name, ([name, value]) => [name, setting(value)]);
  element("to-confirm").hidden = !again.confirm;
  if (again.confirm && element("confirming").textContent !== again.confirm) {
    element("confirming").textContent = again.confirm;
    element("copy-confirming").replaceChildren(copyButton("Copy command to confirm", again.confirm));
  }
  const wanted = `${state} ${settled(progress.states)}`;
  if (element("result").dataset.shown === wanted) return;
  const { answer, findings, caveats, checkpoint } = await request(`${HERE}/result`);
  element("result").dataset.shown = wanted;
  show("result-sentence", answer);
  element("result-remarks").replaceChildren(...[...findings, ...caveats].map((sentence) => {
    const item = document.createElement("li");
    item.textContent = sentence;
    return item;
  }));
  element("result-checkpoint").replaceChildren(...(checkpoint === null ? [] : [`Checkpoint ${checkpoint} `, copyButton("Copy path", checkpoint)]));
}

const unknown = (state) => (state === "INTERRUPTED" ? "not running" : "not known yet");

function waits(place) {
  if (!place) return "";
  const share = `It runs ${place.running} of ${place.wanted} trials that it could; its share is ${place.share}.`;
  if (!place.position) return place.why ?? share;
  const start = place.expected_start === null ? "at an unknown time" : time(place.expected_start);
  return `Number ${place.position} in the queue: ${place.why} Expected to start ${start}.`;
}

async function readRows(news) {
  rows = await readTrials(news);
}

// Reads the curves of the metrics that are chosen, of the first trials of the table if it is filtered.
async function readCurves() {
  curveView.isChosen = isFiltered();
  const chosen = rows.filter((trial) => trial.role === "search").slice(0, MOST_CURVES).map((trial) => trial.number);
  const query = (name) => {
    const wanted = new URLSearchParams({ trials: MOST_CURVES, points: MOST_POINTS });
    if (name) wanted.set("metric", name);
    if (curveView.isChosen) for (const trial of chosen.length ? chosen : [-1]) wanted.append("trial", trial);
    return request(`${HERE}/curves?${wanted}`);
  };
  const beside = element("metric-beside").value;
  const found = await Promise.all([query(element("metric").value), ...(beside ? [query(beside)] : [])]);
  const scale = showCurves(found, curveView, openTrial);
  element("scale").querySelector(`[value=${scale}]`).checked = true;
}

// Runs a change of the user, says what it has done, and shows it at once.
async function changed(action, answer = () => "") {
  show("changed", "");
  const done = await showProblem(action);
  if (!done) return;
  show("changed", answer(done));
  refresh();
}

element("curve-view").addEventListener("change", ({ target }) => {
  if (target.name === "scale") curveView.scale = target.value;
  else if (target.id === "metric") curveView.scale = null;
  curveView.axis = element("axis").value;
  curveView.smoothing = element("smoothing").valueAsNumber;
  readCurves().catch((error) => show("refresh-problem", error.message));
});
element("to-log").addEventListener("click", () => { element("log-section").open = true; });
element("curve-view").addEventListener("submit", (event) => event.preventDefault());
element("stop").addEventListener("click", async () => {
  const question = `Stop ${SWEEP}? Its trials are saved, and it goes on only when somebody resumes it.`;
  if (await confirmed(question, "Stop the sweep")) changed(() => request(`${HERE}/stop`, "POST"));
});
element("resume").addEventListener("click", () => changed(() => request(`${HERE}/resume`, "POST")));
element("retry").addEventListener("click", () => changed(() => request(`${HERE}/retry`, "POST")));
element("archive").addEventListener("click", ({ target }) => changed(() => request(`${HERE}/shelf`, "PUT", { shelf: target.value || null })));
element("extend").addEventListener("submit", (event) => {
  event.preventDefault();
  const trials = element("trials-wanted").valueAsNumber;
  changed(() => request(`${HERE}/extend`, "POST", { trials }), () => `The sweep is queued again, until ${plural(trials, "trial")} have ended.`);
});
element("move").addEventListener("submit", (event) => {
  event.preventDefault();
  const body = { priority_class: element("priority").value, weight: element("weight").valueAsNumber };
  changed(() => request(HERE, "PATCH", body), (done) => `The class is ${done.priority_class}, the weight ${brief(done.weight)} now.`);
});

const { readMatters, filtered } = analyse(HERE, (importances) => readTrials({ importances }));
followLog(`${HERE}/log`);
leaderboard(HERE, SWEEP, async (shown) => {
  rows = shown;
  await Promise.all([readCurves(), filtered()]);
}, lightCurve);

user = await signedIn();
element("again-link").hidden = user.role === "viewer";
watch({ sweep: SWEEP }, refresh);
