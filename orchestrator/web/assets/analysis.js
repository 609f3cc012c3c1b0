// What a sweep has learned and spent, in sections that are read while they are open.

import { chart } from "./charts.js";
import { draw, extent, painted, ratio, text } from "./drawing.js";
import { request } from "./requests.js";
import { duration, element, number, setting, show } from "./shown.js";
import { bar, fill } from "./tables.js";

const EVERY_MS = 30_000;
const MOST_LINES = 300;
const HEIGHT = 320;
const NARROWEST = 110; // pixels between two axes
const EDGE = 40;
const TOP = 60;

export function analyse(here) {
  const sections = { "pareto-section": showPareto, "parallel-section": showParallel, "analysis-section": showAnalysis, "changes-section": showChanges };

  async function read(name) {
    if (!element(name).open || document.hidden) return;
    try {
      await sections[name](here);
      show(`${name}-problem`, "");
    } catch (error) {
      show(`${name}-problem`, error.message);
    }
    element(name).ariaBusy = "false"; // what is read again replaces what is shown
  }

  // The front stays hidden without several objectives, which are known once a driver has started.
  async function offerFront() {
    try {
      if ((await request(here)).direction === null) return;
      const { objectives } = await request(`${here}/pareto`);
      element("pareto-section").hidden = Object.keys(objectives).length === 1;
      clearInterval(offering);
    } catch {
      // The page shows why its other requests fail; this one is repeated.
    }
  }

  const offering = setInterval(offerFront, EVERY_MS);
  offerFront();
  for (const name of Object.keys(sections)) element(name).addEventListener("toggle", () => read(name));
  setInterval(() => Object.keys(sections).forEach(read), EVERY_MS);
}

async function showPareto(here) {
  const front = await request(`${here}/pareto`);
  const names = Object.keys(front.objectives);
  const params = [...new Set(front.trials.flatMap((trial) => Object.keys(trial.params)))];
  const reference = Object.entries(front.reference).map(([name, value]) => `${name} ${number(value)}`).join(", ");
  show("pareto-caption", front.trials.length
    ? `${front.trials.length} of ${front.candidates} feasible trials are not dominated by another one. Hypervolume: ${number(front.hypervolume)}, beyond ${reference}.`
    : "No trial has a value yet.");
  fill(element("pareto-head"), [names], () => "names", () => ["trial", ...names, "step", ...params]);
  fill(element("pareto-values"), front.trials, (trial) => trial.key, (trial) => (
    [trial.label, ...names.map((name) => number(trial.values[name])), trial.step, ...params.map((name) => name in trial.params ? setting(trial.params[name]) : "")]
  ));
}

async function showParallel(here) {
  const [found, { direction }] = await Promise.all([bothEnds(`${here}/trials?sort=value&limit=1000`), request(here)]);
  const ascending = found.filter((trial) => trial.role === "search" && typeof trial.value === "number");
  const trials = direction === "minimize" ? ascending.toReversed() : ascending; // the best is drawn last, over all others
  const names = [...new Set(trials.flatMap((trial) => Object.keys(trial.params)))];
  const axes = [...names.map((name) => axis(name, trials.map((trial) => trial.params[name]))),
    axis("value", trials.map((trial) => trial.value))];
  const spread = extent(trials.map((trial) => trial.value));
  const lines = thinned(trials).map((trial) => ({
    title: `trial ${trial.number}: ${number(trial.value)}`,
    rank: rank(trial.value, spread, direction),
    values: [...names.map((name) => trial.params[name]), trial.value],
  }));
  element("parallel").style.minWidth = `${axes.length * NARROWEST}px`;
  painted(element("parallel"), (width) => ({ height: HEIGHT, nodes: parallel(width, axes, lines) }));
  fill(element("parallel-head"), [names], () => "names", () => ["trial", ...names, "value"]);
  fill(element("parallel-values"), thinned(trials).toReversed(), (trial) => trial.key, (trial) => (
    [trial.number, ...names.map((name) => setting(trial.params[name])), number(trial.value)]
  ));
}

// From 0 for the worst to 4 for the best value.
export function rank(value, spread, direction) {
  const place = ratio(value, spread);
  return Math.round(4 * (direction === "minimize" ? 1 - place : place));
}

function parallel(width, axes, lines) {
  const across = (index) => EDGE + (index / Math.max(1, axes.length - 1)) * (width - 2 * EDGE);
  const label = (content, x, y) => (
    text(content, x, y, x < 2 * EDGE ? "start" : x > width - 2 * EDGE ? "end" : "middle")
  );
  return [
    ...lines.map(({ title, rank, values }) => {
      const points = values.flatMap((value, index) => (
        value === undefined ? [] : [`${across(index).toFixed(1)},${axes[index].down(value).toFixed(1)}`]
      ));
      return draw("polyline", { class: `rank-${rank}`, points: points.join(" ") }, title);
    }),
    ...axes.flatMap(({ name, low, high }, index) => [
      draw("line", { class: "axis", x1: across(index), x2: across(index), y1: TOP, y2: HEIGHT - EDGE }),
      label(name, across(index), index % 2 ? 33 : 15), label(high, across(index), TOP - 8),
      label(low, across(index), HEIGHT - EDGE + 16),
    ]),
  ];
}

// All trials by their value; of more than two pages the lowest and the highest, so that the best are among them.
async function bothEnds(address) {
  const page = await request(address);
  if (page.total <= page.trials.length) return page.trials;
  const known = new Set(page.trials.map((trial) => trial.key));
  const highest = (await request(`${address}&descending=true`)).trials.reverse();
  return [...page.trials, ...highest.filter((trial) => !known.has(trial.key))];
}

// Of more trials than lines, evenly spaced ones by their value, the first and the last among them.
function thinned(trials) {
  if (trials.length <= MOST_LINES) return trials;
  const last = trials.length - 1;
  return Array.from({ length: MOST_LINES }, (_, index) => trials[Math.round((index * last) / (MOST_LINES - 1))]);
}

function axis(name, all) {
  const values = all.filter((value) => value !== undefined);
  const bottom = HEIGHT - EDGE;
  const place = (part) => bottom - part * (bottom - TOP);
  if (!values.every((value) => typeof value === "number")) {
    const written = (value) => String(setting(value));
    const kinds = [...new Set(values.map(written))].sort();
    const down = (value) => place(ratio(kinds.indexOf(written(value)), [0, kinds.length - 1]));
    return { name, low: kinds[0] ?? "", high: kinds.at(-1) ?? "", down };
  }
  const [low, high] = extent(values);
  const logarithmic = low > 0 && high / low >= 30;
  const scaled = (value) => (logarithmic ? Math.log(value) : value);
  const down = (value) => place(ratio(scaled(value), [scaled(low), scaled(high)]));
  return { name: logarithmic ? `${name} (log)` : name, low: number(low), high: number(high), down };
}

async function showAnalysis(here) {
  const { importances, seconds, norms, best } = await request(`${here}/analysis`);
  const percent = (share) => `${(100 * share).toFixed(0)} %`;
  element("importances-empty").hidden = importances.length > 0;
  fill(element("importances"), importances, (entry) => entry.name, ({ name, share, low, high }) => [
    name, bar(share, 1, `importance of ${name}`), percent(share), `${percent(low)} to ${percent(high)}`,
  ]);
  const total = Object.values(seconds).reduce((sum, part) => sum + part, 0);
  fill(element("seconds"), Object.entries(seconds), ([name]) => name, ([name, part]) => [
    name, bar(part, total || 1, `time in ${name}`), part < 60 ? `${part.toFixed(1)} s` : duration(part), percent(total ? part / total : 0),
  ]);
  show("norms-caption", norms.length
    ? `Norms of the hidden states of ${best}, one line for each layer, with its number at the end.`
    : "No trial has reported norms of hidden states.");
  chart(element("norms"), element("norms-legend"), {
    lines: norms.map(({ metric, points }, index) => ({
      name: metric, kind: kindOf(index), points, label: metric.replace(/^.*_/, ""),
    })),
    legend: norms.map(({ metric }, index) => [kindOf(index), metric]), across: "step", down: "norm",
  });
  fill(element("norm-values"), norms, (norm) => norm.metric, ({ metric, points }) => {
    const values = points.map(([, value]) => value).filter(Number.isFinite);
    return [metric, number(values[0]), number(Math.min(...values)), number(Math.max(...values)), number(values.at(-1))];
  });
}

const kindOf = (index) => `layer-${index % 4}`;

async function showChanges(here) {
  const { previous, differences } = await request(`${here}/changes`);
  const anchor = element("previous");
  anchor.textContent = previous ?? "";
  if (previous) anchor.href = `/sweeps/${encodeURIComponent(previous)}`;
  const same = previous && !differences.length;
  show("changes-caption", previous
    ? (same ? "Nothing differs from " : "Against ") : "There is no earlier sweep of this file and profile.");
  element("changes").replaceChildren(...differences.map((phrase) => {
    const item = document.createElement("li");
    item.textContent = phrase;
    return item;
  }));
}
