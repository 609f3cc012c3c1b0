import { analyse } from "./analysis.js";
import { draw, extent, ratio, text } from "./drawing.js";
import { announce, bar, element, fill, number, parameters, request, showProblem, signedIn, watch } from "./shared.js";

const SWEEP = document.body.dataset.sweep;
const HERE = `/sweeps/${encodeURIComponent(SWEEP)}`;
const ROWS = 100;
const LOG_MS = 5_000;
const FETCH_MS = 2_000;
const MARGIN = { left: 70, right: 15, top: 15, bottom: 30 };
const SIZE = { width: 800, height: 300 };

const shown = { sort: "number", descending: true, offset: 0 };
let stamp = null;
let fetching = false;
let again = false;

function paint(entries) {
  const sweep = entries.get("sweep");
  if (!sweep) return;
  const progress = sweep.progress;
  const settled = ["COMPLETE", "PRUNED", "FAILED"].reduce((sum, state) => sum + (progress.states[state] ?? 0), 0);
  element("state").textContent = sweep.state;
  element("reason").textContent = sweep.reason ?? "";
  element("progress").max = progress.wanted;
  element("progress").value = settled;
  element("counts").textContent = `${settled} of ${progress.wanted}`;
  const best = progress.best_key ? `${sweep.metric} ${number(progress.best_value)} (${progress.best_key})` : "none yet";
  element("best").textContent = best;
  announce(`${sweep.state}, ${settled} of ${progress.wanted} trials finished, best ${best}`);
  fill(element("running"), entries.get("running"), (trial) => trial.key, (trial) => [
    trial.number, bar(trial.step, trial.total_steps, `trial ${trial.number}`),
    `${trial.step} of ${trial.total_steps}`, parameters(trial.params),
  ]);
  const now = `${entries.get("reported_at")} ${JSON.stringify(progress.states)}`;
  if (now !== stamp) {
    stamp = now;
    refresh();
  }
}

// Curves and the table are fetched after a change, and not more often than every two seconds.
async function refresh() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  await Promise.all([showTrials(), showCurves()]);
  setTimeout(() => {
    fetching = false;
    if (again) {
      again = false;
      refresh();
    }
  }, FETCH_MS);
}

async function showTrials() {
  const { sort, descending, offset } = shown;
  const page = await request(`${HERE}/trials?sort=${sort}&descending=${descending}&offset=${offset}&limit=${ROWS}`);
  fill(element("trials"), page.trials, (trial) => trial.key, (trial) => [
    trial.role === "search" ? trial.number : `confirmation ${trial.number}`, trial.state, number(trial.value),
    trial.step, trial.attempts, parameters(trial.params), trial.cause,
  ]);
  const last = Math.min(offset + ROWS, page.total);
  element("page").textContent = page.total ? `${offset + 1} to ${last} of ${page.total}` : "no trials yet";
  element("earlier").disabled = offset === 0;
  element("later").disabled = last >= page.total;
  for (const head of element("sort").cells) {
    const own = head.querySelector("button")?.dataset.sort === sort;
    if (own) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
}

async function showCurves() {
  const { curves, metric } = await request(`${HERE}/curves?trials=20&points=200`);
  const points = curves.flatMap((curve) => curve.points).filter(([, value]) => Number.isFinite(value));
  if (!points.length) return;
  const steps = extent(points.map(([step]) => step));
  const values = extent(points.map(([, value]) => value));
  const across = (step) => MARGIN.left + ratio(step, steps) * (SIZE.width - MARGIN.left - MARGIN.right);
  const down = (value) => SIZE.height - MARGIN.bottom - ratio(value, values) * (SIZE.height - MARGIN.top - MARGIN.bottom);
  const best = curves.find((curve) => curve.state !== "RUNNING");
  const lines = curves.toReversed().map((curve) => draw("polyline", {
    class: `${curve === best ? "best" : ""} ${curve.state === "RUNNING" ? "running" : ""}`.trim(),
    points: curve.points.map(([step, value]) => `${across(step).toFixed(1)},${down(value).toFixed(1)}`).join(" "),
  }, `trial ${curve.number}`));
  element("curves").replaceChildren(
    draw("line", { x1: MARGIN.left, x2: SIZE.width - MARGIN.right, y1: down(values[0]), y2: down(values[0]) }),
    draw("line", { x1: MARGIN.left, x2: SIZE.width - MARGIN.right, y1: down(values[1]), y2: down(values[1]) }),
    text(number(values[1]), 5, down(values[1]) + 4), text(number(values[0]), 5, down(values[0]) + 4),
    text(`${metric} against the step`, MARGIN.left, SIZE.height - 8),
    text(`${steps[1]}`, SIZE.width - 60, SIZE.height - 8),
    ...lines,
  );
}

async function showLog() {
  if (!element("log-section").open || document.hidden) return;
  const log = element("log");
  try {
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 5;
    log.textContent = (await request(`${HERE}/log`)).text;
    if (atEnd) log.scrollTop = log.scrollHeight;
  } catch (error) {
    log.textContent = error.message;
  }
}

element("sort").addEventListener("click", (event) => {
  const sort = event.target.dataset.sort;
  if (!sort) return;
  shown.descending = sort === shown.sort ? !shown.descending : false;
  Object.assign(shown, { sort, offset: 0 });
  showTrials();
});
element("earlier").addEventListener("click", () => {
  shown.offset = Math.max(0, shown.offset - ROWS);
  showTrials();
});
element("later").addEventListener("click", () => {
  shown.offset += ROWS;
  showTrials();
});
element("stop").addEventListener("click", () => showProblem(() => request(`${HERE}/stop`, "POST")));
element("retry").addEventListener("click", () => showProblem(() => request(`${HERE}/retry`, "POST")));
element("extend").addEventListener("click", () => showProblem(() => (
  request(`${HERE}/extend`, "POST", { trials: element("trials-wanted").valueAsNumber })
)));
element("set-priority").addEventListener("click", () => showProblem(() => (
  request(HERE, "PATCH", { priority_class: element("priority").value })
)));
element("log-section").addEventListener("toggle", showLog);
setInterval(showLog, LOG_MS);

analyse(HERE);

const user = await signedIn();
const sweep = await request(HERE);
element("file").textContent = sweep.text;
element("trials-wanted").value = sweep.progress.wanted;
element("actions").hidden = !(user.role === "admin" || (user.role === "member" && sweep.owner === user.name));
watch(`${HERE}/events`, paint);
