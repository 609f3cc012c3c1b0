// What a sweep has learned and spent, in sections that are read while they are open.

import { bar, element, fill, number, request } from "./shared.js";
import { draw, extent, ratio, text } from "./drawing.js";

const EVERY_MS = 30_000;
const MOST_LINES = 300;
const WIDTH = 800;
const HEIGHT = 300;
const EDGE = 40;
const TOP = 60;

export function analyse(here) {
  const sections = { "parallel-section": showParallel, "analysis-section": showAnalysis, "changes-section": showChanges };

  async function show(name) {
    if (!element(name).open || document.hidden) return;
    const problem = element(`${name}-problem`);
    try {
      await sections[name](here);
      problem.textContent = "";
    } catch (error) {
      problem.textContent = error.message;
    }
  }

  for (const name of Object.keys(sections)) element(name).addEventListener("toggle", () => show(name));
  setInterval(() => Object.keys(sections).forEach(show), EVERY_MS);
}

async function showParallel(here) {
  const found = await bothEnds(`${here}/trials?sort=value&limit=1000`);
  const trials = found.filter((trial) => trial.role === "search" && typeof trial.value === "number");
  const names = [...new Set(trials.flatMap((trial) => Object.keys(trial.params)))];
  const axes = [...names.map((name) => axis(name, trials.map((trial) => trial.params[name]))),
    axis("value", trials.map((trial) => trial.value))];
  const across = (index) => EDGE + (index / Math.max(1, axes.length - 1)) * (WIDTH - 2 * EDGE);
  const spread = extent(trials.map((trial) => trial.value));
  const lines = thinned(trials).map((trial) => {
    const values = [...names.map((name) => trial.params[name]), trial.value];
    const points = values.flatMap((value, index) => (
      value === undefined ? [] : [`${across(index).toFixed(1)},${axes[index].down(value).toFixed(1)}`]
    ));
    const rank = Math.round(4 * ratio(trial.value, spread));
    return draw("polyline", { class: `rank-${rank}`, points: points.join(" ") }, `trial ${trial.number}: ${number(trial.value)}`);
  });
  const marks = axes.flatMap(({ name, low, high }, index) => [
    draw("line", { x1: across(index), x2: across(index), y1: TOP, y2: HEIGHT - EDGE }),
    label(name, across(index), index % 2 ? 33 : 15), label(high, across(index), TOP - 8),
    label(low, across(index), HEIGHT - EDGE + 16),
  ]);
  element("parallel").replaceChildren(...lines, ...marks);
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
    const kinds = [...new Set(values.map(String))].sort();
    const down = (value) => place(ratio(kinds.indexOf(String(value)), [0, kinds.length - 1]));
    return { name, low: kinds[0] ?? "", high: kinds.at(-1) ?? "", down };
  }
  const [low, high] = extent(values);
  const logarithmic = low > 0 && high / low >= 30;
  const scaled = (value) => (logarithmic ? Math.log(value) : value);
  const down = (value) => place(ratio(scaled(value), [scaled(low), scaled(high)]));
  return { name: logarithmic ? `${name} (log)` : name, low: number(low), high: number(high), down };
}

function label(content, x, y) {
  const node = text(content, x, y);
  node.setAttribute("text-anchor", x < 2 * EDGE ? "start" : x > WIDTH - 2 * EDGE ? "end" : "middle");
  return node;
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
    name, bar(part, total || 1, `time in ${name}`), `${part.toFixed(1)} s`, percent(total ? part / total : 0),
  ]);
  element("norms-caption").textContent = norms.length
    ? `Norms of the hidden states of ${best}, one line for each layer, against the step.`
    : "No trial has reported norms of hidden states.";
  const points = norms.flatMap((norm) => norm.points);
  const steps = extent(points.map(([step]) => step));
  const values = extent(points.map(([, value]) => value));
  element("norms").replaceChildren(...norms.map(({ metric, points: own }) => draw("polyline", {
    points: own.map(([step, value]) => [
      EDGE + ratio(step, steps) * (WIDTH - 2 * EDGE), HEIGHT - EDGE - ratio(value, values) * (HEIGHT - 2 * EDGE),
    ].map((place) => place.toFixed(1)).join(",")).join(" "),
  }, metric)), ...(norms.length ? [
    text(number(values[1]), 5, EDGE - 4), text(number(values[0]), 5, HEIGHT - EDGE + 16),
    text(`${steps[1]}`, WIDTH - 60, HEIGHT - 8),
  ] : []));
  fill(element("norm-values"), norms, (norm) => norm.metric, ({ metric, points: own }) => (
    [metric, number(own[0][1]), number(own.at(-1)[1])]
  ));
}

async function showChanges(here) {
  const { previous, differences } = await request(`${here}/changes`);
  const anchor = element("previous");
  anchor.textContent = previous ?? "";
  if (previous) anchor.href = `/sweeps/${encodeURIComponent(previous)}`;
  const same = previous && !differences.length;
  element("changes-caption").textContent = previous
    ? (same ? "Nothing differs from " : "Against ") : "There is no earlier sweep of this file and profile.";
  element("changes").replaceChildren(...differences.map((phrase) => {
    const item = document.createElement("li");
    item.textContent = phrase;
    return item;
  }));
}
