// The page of a trial: its attempts and causes, checkpoints, values, curve and log.

import { chart } from "./charts.js";
import { watch } from "./events.js";
import { followLog } from "./log.js";
import { all, refresher, request, signedIn } from "./requests.js";
import { announce, duration, element, number, setting, show, time } from "./shown.js";
import { fill } from "./tables.js";

const { sweep: SWEEP, trial: NUMBER } = document.body.dataset;
const ROLE = new URLSearchParams(location.search).get("role") === "confirmation" ? "confirmation" : "search";
const SWEEP_PATH = `/sweeps/${encodeURIComponent(SWEEP)}`;
const HERE = `${SWEEP_PATH}/trials/${NUMBER}`;
const MOST_CURVES = 50;

const refresh = refresher(() => all([readTrial(), readCurve()]));

async function readTrial() {
  const found = await request(`${HERE}?role=${ROLE}`);
  const { trial } = found;
  show("name", `${ROLE === "search" ? "Trial" : "Confirmation"} ${trial.number}`);
  show("state", trial.state);
  element("state").dataset.state = trial.state;
  show("reason", trial.cause);
  element("progress").max = trial.total_steps;
  element("progress").value = trial.step;
  show("counts", `${trial.step} of ${trial.total_steps}`);
  show("best", trial.value === null ? "none yet" : `${number(trial.value)} at step ${trial.best_step}`);
  show("times", `Created ${time(trial.created_at)}${trial.finished_at === null ? "" : `, ended ${time(trial.finished_at)}`}. Seed ${found.seed}.`);
  show("repeats", found.repeats && `Repeats a setting of ${found.repeats}${found.similarity && `: ${found.similarity}`}.`);
  element("mlflow").hidden = found.mlflow.url === null;
  if (found.mlflow.url !== null) element("mlflow").href = found.mlflow.url;
  announce("progress", `${trial.state}, step ${trial.step} of ${trial.total_steps}`);
  fill(element("parameters"), Object.entries(trial.params), ([name]) => name, ([name, value]) => [name, setting(value)]);
  fill(element("attempts"), found.attempts, (attempt) => attempt.number, (attempt) => [
    attempt.number, attempt.state, attempt.node, time(attempt.started_at),
    duration(attempt.taken_at === null ? null : attempt.taken_at - attempt.started_at), ran(attempt), attempt.cause,
  ]);
  fill(element("checkpoints"), found.checkpoints, (saved) => `${saved.kind} ${saved.step}`, (saved) => [
    saved.step, saved.kind, saved.bytes.toLocaleString(), saved.digest.slice(0, 16), saved.path,
  ]);
  element("evaluations-section").hidden = found.evaluations.length === 0;
  fill(element("evaluations"), found.evaluations, (row) => `${row.split} ${row.step}`, (row) => [
    row.split, row.step, time(row.at), values(row.metrics),
  ]);
  fill(element("last-report"), Object.entries(found.last_report?.metrics ?? {}), ([name]) => name, ([name, value]) => [name, number(value)]);
  show("reports", found.last_report ? `The last of ${found.reports} reports, at step ${found.last_report.step}.` : "It has not reported yet.");
  element("log-section").hidden = !found.has_log;
}

const values = (metrics) => Object.entries(metrics).map(([name, value]) => `${name} ${number(value)}`).join(", ");

function ran(attempt) {
  if (attempt.ended_at === null) return "";
  return duration(attempt.ended_at - (attempt.taken_at ?? attempt.started_at));
}

// The server returns the curves of the running trials and of the best ones.
async function readCurve() {
  const { curves, metric } = await request(`${SWEEP_PATH}/curves?trials=${MOST_CURVES}&points=500`);
  const key = `${SWEEP}-${ROLE === "search" ? "" : "c"}${NUMBER}`;
  const own = curves.find((curve) => curve.trial === key);
  element("curve-section").hidden = !own;
  element("curve-empty").hidden = Boolean(own);
  if (!own) return;
  chart(element("curve"), element("curve-legend"), {
    lines: [{ name: `trial ${NUMBER}`, kind: "best", points: own.points }],
    legend: [["best", metric]], across: "step", down: metric,
  });
  fill(element("curve-values"), own.points, ([step]) => step, ([step, value]) => [step, number(value)]);
}

followLog(`${HERE}/log?role=${ROLE}`);

await signedIn();
watch({ sweep: SWEEP }, refresh);
