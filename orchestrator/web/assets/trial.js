// The page of a trial: its result and rank, why it ended, its curves, settings, log, attempts and checkpoints.

import { chart } from "./charts.js";
import { confirmed } from "./dialogs.js";
import { draw, extent } from "./drawing.js";
import { watch } from "./events.js";
import { followLog } from "./log.js";
import { notes } from "./notes.js";
import { all, owns, refresher, request, showProblem, signedIn } from "./requests.js";
import { ago, announce, duration, element, number, setting, show } from "./shown.js";
import { anchor, copyButton, fill, sweepAddress } from "./tables.js";

const { sweep: SWEEP, trial: NUMBER } = document.body.dataset;
const ROLE = new URLSearchParams(location.search).get("role") === "confirmation" ? "confirmation" : "search";
const SWEEP_PATH = `/sweeps/${encodeURIComponent(SWEEP)}`;
const HERE = `${SWEEP_PATH}/trials/${NUMBER}`;
const OWN_KEY = `${SWEEP}-${ROLE === "search" ? "" : "c"}${NUMBER}`;
const POINTS = 500;
const MOST_IN_RANGE = 200; // trials of which the settings are compared
const RANGE_WIDTH = 90;

const showNote = notes(`${HERE}/note?role=${ROLE}`);

let user = null;
let found = null; // the document of the trial
let sweep = null; // the state of its sweep
let row = null; // of the table of trials
let ranges = null; // settings of the best trials, read once
let isLogOpened = false;

const refresh = refresher(() => all([readTrial().then(() => all([readSettings(), readRank(), readCurves()]))]));

async function readTrial() {
  [found, { status: sweep }] = await Promise.all([request(`${HERE}?role=${ROLE}`), request(`${SWEEP_PATH}/live`)]);
  const { trial, last_report: last } = found;
  const name = `${ROLE === "search" ? "Trial" : "Confirmation"} ${trial.number}`;
  row = await ownRow();
  const value = trial.value === null ? "" : `${number(trial.value)} `;
  document.title = `${trial.state} ${value}${name.toLowerCase()} of ${SWEEP}`;
  show("name", name);
  show("state", trial.state);
  element("state").dataset.state = trial.state;
  showReason(trial);
  const mayChange = owns(user, sweep.owner);
  element("actions").hidden = !mayChange || trial.finished_at !== null;
  element("exempt").hidden = ROLE !== "search" || found.exempt_by !== null;
  show("exempt-by", found.exempt_by && `Exempt from early stopping, requested by ${found.exempt_by}.`);
  showNote(found.note, mayChange);
  element("progress").max = trial.total_steps;
  element("progress").value = trial.step;
  show("counts", `${trial.step} of ${trial.total_steps}`);
  const known = row?.so_far ?? trial.value;
  const none = trial.finished_at === null ? "none yet" : "none";
  show("best", known === null ? none : `${number(known)} at step ${row?.so_far_step ?? trial.best_step}`);
  const latest = last?.metrics[sweep.metric];
  show("latest", latest === undefined ? sweep.metric : `${sweep.metric}, last ${number(latest)}`);
  showTimes(trial);
  show("repeats", found.repeats && `Repeats a setting of ${found.repeats}${found.similarity && `: ${found.similarity}`}.`);
  element("mlflow").hidden = found.mlflow.url === null;
  if (found.mlflow.url !== null) element("mlflow").href = found.mlflow.url;
  announce("progress", `${trial.state}, step ${trial.step} of ${trial.total_steps}`);
  showTables();
  element("log-section").hidden = !found.has_log;
  if (trial.state === "FAILED" && found.has_log && !isLogOpened) element("log-section").open = isLogOpened = true;
}

// The row of a search trial in the table, which has its rank and its best value so far.
async function ownRow() {
  if (ROLE !== "search") return null;
  const { trials } = await request(`${SWEEP_PATH}/trials?${new URLSearchParams({ where: `number = ${NUMBER}`, limit: 5 })}`);
  return trials.find(({ role }) => role === "search") ?? null;
}

// Shows the last line of the user's exception first, then the advice, and the whole cause on demand.
function showReason(trial) {
  const group = trial.state === "FAILED" && ROLE === "search"
    ? sweep.failed.find(({ cause, message }) => trial.cause?.startsWith(cause) && trial.cause.includes(message))
    : undefined;
  const place = group?.file ? ` (${group.file}${group.line === null ? "" : `, line ${group.line}`})` : "";
  const lines = (trial.cause ?? "").trim().split("\n");
  show("reason", group ? `${group.message}${place}` : lines.at(-1));
  element("reason").className = trial.state === "FAILED" ? "problem" : "";
  show("next-step", group?.next_step ?? "");
  element("cause-section").hidden = !trial.cause || element("reason").textContent === trial.cause.trim();
  show("cause", trial.cause);
}

function showTimes(trial) {
  const { attempts } = found;
  const now = Date.now() / 1000;
  const sum = (seconds) => attempts.reduce((total, attempt) => total + seconds(attempt), 0);
  const ran = sum((attempt) => (attempt.taken_at === null ? 0 : (attempt.ended_at ?? now) - attempt.taken_at));
  const waited = sum((attempt) => (attempt.taken_at ?? attempt.ended_at ?? now) - attempt.started_at);
  show("ran", attempts.length ? `ran ${duration(ran)}` : "not started");
  show("waited", attempts.length ? `waited ${duration(waited)} for resources` : "");
  show("host", attempts.at(-1)?.node ?? "");
  const created = document.createElement("span");
  created.append("proposed ", ago(trial.created_at));
  if (trial.finished_at !== null) created.append(", ended ", ago(trial.finished_at));
  put("times", created);
  const seed = document.createElement("span");
  seed.append(`${found.seed} `, copyButton("Copy", String(found.seed)));
  put("seed", seed);
}

// Replaces the content of an element only if it differs, so that focus and selection stay.
function put(id, content) {
  const place = element(id);
  if (place.innerHTML !== content.innerHTML) place.replaceChildren(...content.childNodes);
}

function showTables() {
  fill(element("attempts"), found.attempts, (attempt) => attempt.number, (attempt) => [
    attempt.number, attempt.state, attempt.node, ago(attempt.started_at),
    duration(attempt.taken_at === null ? null : attempt.taken_at - attempt.started_at), ran(attempt), attempt.cause,
  ]);
  fill(element("checkpoints"), found.checkpoints, (saved) => `${saved.kind} ${saved.step}`, (saved) => [
    saved.step, saved.kind, saved.bytes.toLocaleString(), saved.digest.slice(0, 16), copyButton("Copy path", saved.path),
  ]);
  element("evaluations-section").hidden = found.evaluations.length === 0;
  fill(element("evaluations"), found.evaluations, (evaluated) => `${evaluated.split} ${evaluated.step}`, (evaluated) => [
    evaluated.split, evaluated.step, ago(evaluated.at), values(evaluated.metrics),
  ]);
  fill(element("last-report"), Object.entries(found.last_report?.metrics ?? {}), ([name]) => name, ([name, value]) => [name, number(value)]);
  show("reports", found.last_report ? `The last of ${found.reports} reports, at step ${found.last_report.step}.` : "It has not reported yet.");
}

const values = (metrics) => Object.entries(metrics).map(([name, value]) => `${name} ${number(value)}`).join(", ");

function ran(attempt) {
  if (attempt.ended_at === null) return "";
  return duration(attempt.ended_at - (attempt.taken_at ?? attempt.started_at));
}

// Shows each setting beside that of the best trial, and its place among the settings of the best trials.
async function readSettings() {
  ranges ??= (await request(`${SWEEP_PATH}/trials?sort=rank&limit=${MOST_IN_RANGE}`));
  const best = sweep.chosen ?? sweep.best;
  const isOther = best !== null && best.key !== OWN_KEY;
  show("best-title", isOther ? `best (${best.label})` : "best");
  const scales = new Map(ranges.columns.filter(({ kind }) => kind === "parameter").map(({ name, scale }) => [name, scale]));
  fill(element("parameters"), Object.entries(found.trial.params), ([name]) => name, ([name, value]) => [
    name, setting(value), isOther ? setting(best.params[name]) : "", range(name, value, scales.get(name)),
  ]);
}

function range(name, value, scale) {
  const numbers = ranges.trials.map(({ params }) => params[name]).filter(Number.isFinite);
  if (!Number.isFinite(value) || numbers.length < 2) return "";
  const [low, high] = extent([...numbers, value]);
  if (low === high) return "";
  const along = scale === "log" && low > 0 ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  const picture = draw("svg", { class: "range", width: RANGE_WIDTH, height: 12, "aria-hidden": "true" });
  const place = 5 + along * (RANGE_WIDTH - 10);
  picture.append(draw("line", { class: "axis", x1: 1, x2: RANGE_WIDTH - 1, y1: 6, y2: 6 }), draw("circle", { cx: place.toFixed(1), cy: 6, r: 4 }));
  const shown = document.createElement("span");
  shown.append(`${setting(low)} `, picture, ` ${setting(high)}`);
  return shown;
}

// Shows the rank, with links to the trials before and after it.
async function readRank() {
  const rank = row?.rank ?? null;
  element("neighbours").hidden = rank === null;
  if (rank === null) return;
  const near = await request(`${SWEEP_PATH}/trials?${new URLSearchParams({ sort: "rank", where: "rank >= 1", offset: Math.max(0, rank - 2), limit: 3 })}`);
  show("rank", `rank ${rank} of ${near.total}`);
  for (const [id, at, text] of [["better", rank - 1, "‹ rank"], ["worse", rank + 1, "rank"]]) {
    const other = near.trials.find((trial) => trial.rank === at);
    const link = element(id);
    link.hidden = !other;
    if (!other) continue;
    link.href = `${sweepAddress(SWEEP)}/trials/${other.number}`;
    show(id, `${text} ${at}${id === "worse" ? " ›" : ""}`);
    link.title = `trial ${other.number}`;
  }
}

// Draws the trial over the band of all trials, beside the best trial and the same metric in training.
async function readCurves() {
  const chosen = element("metric").value;
  const best = sweep.chosen ?? sweep.best;
  const drawn = await curvesOf(chosen, best);
  const { metric, metrics, band } = drawn;
  const training = metric?.replace(/^val\//, "train/");
  const own = await ownPoints(drawn, metric);
  const trained = training !== metric && metrics.includes(training) ? await ownPoints(await curvesOf(training), training) : [];
  const other = best === null ? undefined : drawn.curves.find((curve) => curve.trial === best.key && curve.trial !== OWN_KEY);
  element("curve-section").hidden = own.length === 0;
  element("curve-empty").hidden = own.length > 0;
  offer(metrics, metric);
  const lines = [
    ...(other ? [{ name: `trial ${other.number}`, kind: "other", points: other.points, label: `${other.number}` }] : []),
    ...(trained.length ? [{ name: training, kind: "running run-1", points: trained }] : []),
    { name: `trial ${NUMBER}`, kind: "best", points: own, label: `${NUMBER}` },
  ];
  chart(element("curve"), element("curve-legend"), {
    lines, band: band.points, across: "step", down: metric ?? "", scale: element("scale").value, references: drawn.references,
    rungs: drawn.rungs,
    legend: [
      ["best", `this trial: ${metric}`],
      ...(trained.length ? [["running run-1", `this trial: ${training}`]] : []),
      ...(other ? [["other", `best: trial ${other.number}`]] : []),
      ...(band.trials ? [["band", `from the lowest to the highest of ${band.trials} trials`], ["median", "their median"]] : []),
      ...(drawn.rungs.length ? [["rung", `rung: steps ${drawn.rungs.join(", ")}`]] : []),
    ],
  });
  const trainingValues = new Map(trained);
  show("training-title", trainingValues.size ? training : "");
  fill(element("curve-values"), own, ([step]) => step, ([step, value]) => [step, number(value), number(trainingValues.get(step))]);
}

function curvesOf(metric, best = null) {
  const query = new URLSearchParams({ points: POINTS });
  if (metric) query.set("metric", metric);
  if (ROLE === "search") query.append("trial", NUMBER);
  if (best !== null) query.append("trial", best.label);
  return request(`${SWEEP_PATH}/curves?${query}`);
}

// The curves of a sweep have only search trials: those of a confirmation are in its reports.
async function ownPoints(drawn, metric) {
  if (ROLE === "search") return drawn.curves.find((curve) => curve.trial === OWN_KEY)?.points ?? [];
  const { reports } = await request(`${HERE}/reports?role=${ROLE}`);
  return reports.filter(({ metrics }) => metric in metrics).map(({ step, metrics }) => [step, metrics[metric]]);
}

function offer(metrics, metric) {
  const list = element("metric");
  if ([...list.options].map((option) => option.value).join() === metrics.join()) return;
  list.replaceChildren(...metrics.map((name) => new Option(name, name, name === metric, name === metric)));
}

user = await signedIn();
element("metric").addEventListener("change", refresh);
element("scale").addEventListener("change", refresh);
followLog(`${HERE}/log?role=${ROLE}`);
element("stop").addEventListener("click", async () => {
  const question = `Stop trial ${NUMBER}? It is saved and ends for good, and its place goes to the next trial.`;
  if (await confirmed(question, "Stop the trial")) changed("stop");
});
element("exempt").addEventListener("click", () => changed("resume"));

async function changed(action) {
  await showProblem(() => request(`${HERE}/${action}?role=${ROLE}`, "POST"));
  refresh();
}

if (user.role !== "viewer" && ROLE === "search") {
  element("again").append(anchor(`/start?${new URLSearchParams({ sweep: SWEEP, trial: NUMBER })}`, "Again with changes"));
}
watch({ sweep: SWEEP }, refresh);
