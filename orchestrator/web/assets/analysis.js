// What a sweep has learned and spent: importances with slices, parallel coordinates, and sections that are read while
// they are open.

import { chart } from "./charts.js";
import { draw, extent, logTicks, painted, ratio, text, textWidth, ticks, tickText, typicalRange } from "./drawing.js";
import { filterBy, filterText, isFiltered, query } from "./leaderboard.js";
import { request } from "./requests.js";
import { ago, duration, element, number, plural, setting, show } from "./shown.js";
import { bar, fill, trialLabel } from "./tables.js";

const EVERY_MS = 30_000;
const MOST_LINES = 300;
const MOST_TRIALS = 1_000;
const MOST_SLICES = 6;
const HEIGHT = 320;
const SLICE_HEIGHT = 150;
const PAIRS_HEIGHT = 320;
const SHARES = [0.1, 0.25, 0.5, 0.75, 0.9]; // of the trials, whose values are named
const NARROWEST = 110; // pixels between two axes
const EDGE = 40;
const TOP = 60;
const RANKS = 5; // classes of lines, by fifths of the trials
const NEAREST_BRUSH = 4; // pixels of a drag that is more than a click

let here = "";
let importances = [];
let trials = { columns: [], shown: [], matching: null, metric: null }; // the objective is null before the first driver
let onImportances = () => {};

// Starts the sections; `learned` is called with the importances, the largest first, when they have been read.
export function analyse(path, learned) {
  here = path;
  onImportances = learned;
  const sections = {
    matters: showMatters, "pareto-section": showPareto, "parallel-section": showParallel, "more-section": showMore, "analysis-section": showAnalysis,
    "changes-section": showChanges,
  };
  const isOpen = (name) => element(name).open ?? true;

  async function read(name) {
    if (!isOpen(name) || document.hidden) return;
    try {
      await sections[name]();
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
  element("all-axes").addEventListener("change", paintParallel);
  for (const id of ["pairs-across", "pairs-up"]) element(id).addEventListener("change", paintPairs);
  element("no-filter").addEventListener("click", () => filterBy(""));
  setInterval(() => Object.keys(sections).forEach(read), EVERY_MS);
  brushes(element("parallel"));
  return { readMatters: () => read("matters"), filtered: showFilter };
}

const percent = (share) => `${(100 * share).toFixed(0)} %`;

async function showMatters() {
  if (trials.metric === null) return;
  const [found] = await Promise.all([request(`${here}/analysis`), readTrials()]);
  const { counted, pruned, fewest, as_of: asOf } = found;
  importances = found.importances;
  onImportances(importances);
  const of = `Of ${plural(counted, "trial")}${pruned ? `, ${pruned} of them pruned` : ""}; the range holds 90 % of resampled sweeps. As of `;
  element("importances-of").replaceChildren(...(importances.length ? [of, ago(asOf), "."] : []));
  element("importances-empty").hidden = importances.length > 0;
  show("importances-empty", counted < fewest
    ? `Importances need ${fewest} complete or pruned trials with a value; there ${counted === 1 ? "is" : "are"} ${counted} so far.`
    : "The trials do not differ enough to compare hyperparameters.");
  fill(element("importances"), importances, (entry) => entry.name, ({ name, share, low, high }) => [
    name, bar(share, 1, `importance of ${name}`), percent(share), `${percent(low)} to ${percent(high)}`,
  ]);
  paintSlices();
}

// The best trials, and which of them match the filter of the table.
async function readTrials() {
  const page = await request(`${here}/trials?sort=rank&limit=${MOST_TRIALS}`);
  const columns = page.columns.filter(({ kind }) => kind === "parameter");
  trials = { ...trials, columns, shown: page.trials.filter((trial) => trial.rank !== null) };
  await readMatching();
}

async function readMatching() {
  const found = isFiltered() ? (await request(`${here}/trials?${query({ sort: "rank", descending: false, limit: MOST_TRIALS })}`)).trials : null;
  trials.matching = found && new Set(found.map((trial) => trial.key));
}

export const nameObjective = (metric) => { trials.metric = metric; };

// The hyperparameters, the most important first.
function parameters() {
  const places = new Map(importances.map(({ name }, place) => [name, place]));
  const place = ({ name }) => places.get(name) ?? places.size;
  return trials.columns.toSorted((one, other) => place(one) - place(other));
}

// An axis of a hyperparameter or of the values: where a value is, from 0 to 1, and its labels.
function scaleOf(name, scale, all) {
  const values = all.filter((value) => value !== undefined && value !== null);
  if (scale === "choice" || !values.every((value) => typeof value === "number")) {
    const kinds = [...new Set(values.map((value) => String(setting(value))))].sort();
    const ends = [-0.5, kinds.length - 0.5];
    return {
      name, kinds, part: (value) => ratio(kinds.indexOf(String(setting(value))), ends),
      at: (part) => kinds[Math.round(ends[0] + part * kinds.length)], labels: kinds.map((kind, index) => [kind, ratio(index, ends)]),
    };
  }
  const [low, high] = extent(values);
  const isLog = scale === "log" && low > 0;
  const [to, from] = isLog ? [Math.log10, (power) => 10 ** power] : [(value) => value, (value) => value];
  const ends = [to(low), to(high)];
  const part = (value) => ratio(to(value), ends);
  const marks = isLog ? logTicks([low, high], 4) : ticks([low, high], 4);
  return {
    name: isLog ? `${name} (log)` : name, low, high, part, at: (place) => from(ends[0] + place * (ends[1] - ends[0])),
    labels: marks.map((value) => [tickText(value), part(value)]),
  };
}

// The range of the values, from the best one, without outliers if they would flatten the others.
function rangeOf(shown) {
  const values = shown.map((trial) => trial.so_far);
  const [whole, typical] = [extent(values), extent([...typicalRange(values), shown[0].so_far])];
  return whole[1] - whole[0] > 3 * (typical[1] - typical[0]) && typical[1] > typical[0] ? typical : whole;
}

function paintSlices() {
  const place = element("slices");
  const { shown } = trials;
  const chosen = shown.length > 1 ? parameters().slice(0, MOST_SLICES) : [];
  const known = [...place.children].map((figure) => figure.dataset.name);
  if (known.join("\n") !== chosen.map(({ name }) => name).join("\n")) {
    place.replaceChildren(...chosen.map(({ name }) => {
      const figure = document.createElement("figure");
      figure.dataset.name = name;
      const caption = document.createElement("figcaption");
      caption.textContent = name;
      caption.id = `slice-${name}`;
      const svg = draw("svg", { role: "img", "aria-labelledby": caption.id });
      figure.append(caption, svg);
      return figure;
    }));
  }
  if (!chosen.length) return;
  const range = rangeOf(shown);
  chosen.forEach(({ name, scale }, index) => {
    const with_ = shown.filter((trial) => trial.params[name] !== undefined && trial.params[name] !== null);
    const axis = scaleOf(name, scale, with_.map((trial) => trial.params[name]));
    painted(place.children[index].querySelector("svg"), (width) => ({ height: SLICE_HEIGHT, nodes: slice(width, axis, name, with_, range) }));
  });
}

function slice(width, axis, name, shown, range) {
  const rows = ticks(range, 3);
  const left = Math.ceil(textWidth(rows.map(tickText)) + 10);
  const [right, top, bottom] = [width - 10, 8, SLICE_HEIGHT - 24];
  const x = (part) => left + 4 + part * (right - left - 8);
  const y = (value) => bottom - ratio(Math.min(Math.max(value, range[0]), range[1]), range) * (bottom - top);
  const dots = shown.toReversed().map((trial) => draw("circle", {
    class: `dot ${dotKind(trial)}`, cx: x(axis.part(trial.params[name])).toFixed(1), cy: y(trial.so_far).toFixed(1), r: trial.rank === 1 ? 5 : 3,
  }, `trial ${trialLabel(trial)}, ${trial.state.toLowerCase()}: ${name} ${setting(trial.params[name])}, ${number(trial.so_far)}`));
  const marks = spaced(axis.labels, (part) => x(part), width);
  return [
    ...rows.flatMap((value) => [
      draw("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }), text(tickText(value), left - 5, y(value) + 4, "end"),
    ]),
    draw("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    ...marks.map(([label, part]) => text(label, x(part), bottom + 16, x(part) < left + 20 ? "start" : x(part) > right - 20 ? "end" : "middle")),
    ...dots,
  ];
}

// Labels that do not cover each other.
function spaced(labels, x, width) {
  const kept = [];
  for (const [label, part] of labels) {
    const short = String(label).length > 12 ? `${String(label).slice(0, 11)}…` : label;
    const last = kept.at(-1);
    if (!last || x(part) - x(last[1]) > (textWidth([short]) + textWidth([last[0]])) / 2 + 8 || width === 0) kept.push([short, part]);
  }
  return kept;
}

const matches = (trial) => trials.matching === null || trials.matching.has(trial.key);

function dotKind(trial) {
  if (!matches(trial)) return "out";
  return trial.rank === 1 ? "best" : trial.state.toLowerCase();
}

async function showParallel() {
  await readTrials();
  paintParallel();
  paintSlices();
}

// Marks the trials that match a new filter; the trials themselves are read again with the importances.
async function showFilter() {
  await readMatching();
  paintSlices();
  if (element("parallel-section").open) paintParallel();
}

function paintParallel() {
  const { shown, metric } = trials;
  const all = parameters();
  const chosen = element("all-axes").checked ? all : all.slice(0, MOST_SLICES);
  element("all-axes").closest("label").hidden = all.length <= MOST_SLICES;
  element("parallel-empty").hidden = shown.length > 0;
  element("no-filter").hidden = !isFiltered();
  const names = chosen.map(({ name }) => name);
  const range = shown.length ? rangeOf(shown) : [0, 1];
  const value = { ...scaleOf(metric, "linear", range), isValue: true };
  const axes = shown.length
    ? [value, ...chosen.map(({ name, scale }) => ({ ...scaleOf(name, scale, shown.map((trial) => trial.params[name])), parameter: name }))]
    : [];
  const lines = thinned(shown).toReversed().map((trial) => ({ // the best is drawn last, over all others
    title: `trial ${trialLabel(trial)}: ${number(trial.so_far)}`,
    kind: matches(trial) ? `rank-${rank(trial.rank, shown.length)}` : "out",
    parts: [value.part(Math.min(Math.max(trial.so_far, range[0]), range[1])), ...chosen.map(({ name }, index) => (
      trial.params[name] === undefined ? null : axes[index + 1].part(trial.params[name])
    ))],
  }));
  element("parallel").style.minWidth = `${axes.length * NARROWEST}px`;
  painted(element("parallel"), (width) => ({ height: axes.length ? HEIGHT : 0, nodes: axes.length ? parallel(width, axes, lines) : [] }));
  fill(element("parallel-head"), [names], () => names.join(), () => ["rank", "trial", metric, ...names]);
  fill(element("parallel-values"), thinned(shown), (trial) => trial.key, (trial) => (
    [trial.rank, trialLabel(trial), number(trial.so_far), ...names.map((name) => setting(trial.params[name]))]
  ));
  element("parallel-legend").replaceChildren(...(shown.length ? Array.from({ length: RANKS }, (_, index) => legendEntry(index, shown)).toReversed() : []));
}

// From 0 for the last fifth of the trials to 4 for the first.
export function rank(place, count) {
  return RANKS - 1 - Math.min(RANKS - 1, Math.floor((RANKS * (place - 1)) / Math.max(1, count)));
}

function legendEntry(index, shown, shape = "polyline") {
  const of = shown.filter((trial) => rank(trial.rank, shown.length) === index).map((trial) => trial.so_far);
  const item = document.createElement("li");
  const swatch = draw("svg", { viewBox: "0 0 32 12", width: 32, height: 12, "aria-hidden": "true" });
  swatch.append(draw(shape, shape === "circle" ? { class: `rank-${index}`, cx: 16, cy: 6, r: 3 + index / 2 } : { class: `rank-${index}`, points: "0,6 32,6" }));
  item.append(swatch, of.length ? ` ${number(of[0])} to ${number(of.at(-1))}` : " none");
  return item;
}

function parallel(width, axes, lines) {
  const across = (index) => EDGE + (index / Math.max(1, axes.length - 1)) * (width - 2 * EDGE);
  const bottom = HEIGHT - EDGE;
  const down = (part) => bottom - part * (bottom - TOP);
  const anchorAt = (x) => (x < 2 * EDGE ? "start" : x > width - 2 * EDGE ? "end" : "middle");
  axes.forEach((axis, index) => { axis.x = across(index); });
  element("parallel").axes = { axes, down, part: (y) => Math.min(1, Math.max(0, (bottom - y) / (bottom - TOP))) };
  return [
    ...lines.map(({ title, kind, parts }) => {
      const points = parts.flatMap((part, index) => (part === null ? [] : [`${across(index).toFixed(1)},${down(part).toFixed(1)}`]));
      return draw("polyline", { class: kind, points: points.join(" ") }, title);
    }),
    ...axes.flatMap(({ name, labels }, index) => [
      draw("line", { class: "axis", x1: across(index), x2: across(index), y1: TOP, y2: bottom }),
      text(name, across(index), index % 2 ? 33 : 15, anchorAt(across(index))),
      ...labels.map(([label, part]) => text(label, across(index) + (index === axes.length - 1 ? -5 : 5), down(part) + 4, index === axes.length - 1 ? "end" : "start")),
    ]),
    draw("rect", { class: "brush", x: 0, y: 0, width: 0, height: 0 }),
  ];
}

// Lets the pointer drag along an axis, which filters by the values there.
function brushes(svg) {
  let drag = null;
  const axisAt = (x) => svg.axes?.axes.toSorted((one, other) => Math.abs(one.x - x) - Math.abs(other.x - x))[0];
  svg.addEventListener("pointerdown", ({ offsetX, offsetY, pointerId }) => {
    const axis = axisAt(offsetX);
    if (!axis) return;
    drag = { axis, from: offsetY, to: offsetY };
    svg.setPointerCapture(pointerId);
  });
  svg.addEventListener("pointermove", ({ offsetY }) => {
    if (!drag) return;
    drag.to = offsetY;
    const rect = svg.querySelector(".brush");
    for (const [name, size] of Object.entries({ x: drag.axis.x - 8, y: Math.min(drag.from, drag.to), width: 16, height: Math.abs(drag.to - drag.from) })) rect?.setAttribute(name, size);
  });
  svg.addEventListener("pointerup", () => {
    const { axis, from, to } = drag ?? {};
    drag = null;
    if (!axis || Math.abs(to - from) < NEAREST_BRUSH) return;
    const [low, high] = [svg.axes.part(Math.max(from, to)), svg.axes.part(Math.min(from, to))];
    filterBy(brushed(filterText(), axis, low, high));
  });
  svg.addEventListener("pointercancel", () => { drag = null; });
}

// A filter in which the comparisons of an axis are replaced by those of a part of it.
export function brushed(where, { isValue, parameter, kinds, labels, at }, low, high) {
  const name = isValue ? "value" : parameter;
  const kept = / or /.test(where) ? "" : where; // alternatives cannot be narrowed by one more comparison
  const others = kept.split(/\s+and\s+|,/).map((each) => each.trim()).filter((each) => each && !each.startsWith(`${name} `));
  const round = (value) => Number(value.toPrecision(4));
  if (!kinds) return [...others, `${name} >= ${round(at(low))}`, `${name} <= ${round(at(high))}`].join(" and ");
  const inside = labels.filter(([, part]) => part >= low && part <= high).map(([kind]) => kind);
  const outside = kinds.filter((kind) => !inside.includes(kind));
  const quoted = (kind) => (/[\s,<>=!"']/.test(kind) ? `"${kind.replaceAll('"', "")}"` : kind);
  return [...others, ...(inside.length ? outside.map((kind) => `${name} != ${quoted(kind)}`) : [])].join(" and ");
}

// Of more trials than lines, evenly spaced ones by their rank, the first and the last among them.
function thinned(all) {
  if (all.length <= MOST_LINES) return all;
  const last = all.length - 1;
  return Array.from({ length: MOST_LINES }, (_, index) => all[Math.round((index * last) / (MOST_LINES - 1))]);
}

async function showMore() {
  await readTrials();
  const { shown, metric } = trials;
  const [low, high] = shown.length ? rangeOf(shown) : [0, 0];
  const shares = shown.map((trial, index) => [trial.so_far, (index + 1) / shown.length]).filter(([value]) => value >= low && value <= high);
  chart(element("distribution"), element("distribution-legend"), {
    lines: shown.length ? [{ name: "share", kind: "best", points: shares.toSorted(([one], [other]) => one - other) }] : [],
    legend: shown.length ? [["best", `share of the ${plural(shown.length, "trial")} that are not worse than a value`]] : [],
    across: metric, down: "share", scale: "linear", isWhole: false, readout: "distribution-at",
  });
  const parts = shown.length ? SHARES : [];
  fill(element("distribution-values"), parts, (part) => part, (part) => [
    percent(part), number(shown[Math.max(0, Math.ceil(part * shown.length) - 1)].so_far),
  ]);
  const names = parameters().map(({ name }) => name);
  ["pairs-across", "pairs-up"].forEach((id, place) => {
    const list = element(id);
    if ([...list.options].map(({ value }) => value).join() === names.join()) return;
    list.replaceChildren(...names.map((name, index) => new Option(name, name, index === place, index === place)));
  });
  paintPairs();
}

// Trials by two hyperparameters; a darker and larger dot has a better rank.
function paintPairs() {
  const names = ["pairs-across", "pairs-up"].map((id) => element(id).value);
  const shown = trials.shown.filter((trial) => names.every((name) => trial.params[name] !== undefined && trial.params[name] !== null));
  const axes = names.map((name) => scaleOf(name, trials.columns.find((column) => column.name === name)?.scale, shown.map((trial) => trial.params[name])));
  painted(element("pairs"), (width) => ({ height: shown.length ? PAIRS_HEIGHT : 0, nodes: shown.length ? pairs(width, axes, names, shown) : [] }));
  fill(element("pairs-head"), [names], () => names.join(), () => ["trial", ...names, trials.metric]);
  fill(element("pairs-values"), thinned(shown), (trial) => trial.key, (trial) => [
    trialLabel(trial), ...names.map((name) => setting(trial.params[name])), number(trial.so_far),
  ]);
  element("pairs-legend").replaceChildren(...(shown.length ? Array.from({ length: RANKS }, (_, index) => legendEntry(index, trials.shown, "circle")).toReversed() : []));
}

function pairs(width, [across, up], names, shown) {
  const left = Math.ceil(textWidth(up.labels.map(([label]) => label)) + 12);
  const [right, top, bottom] = [width - 12, 20, PAIRS_HEIGHT - 40];
  const x = (part) => left + 6 + part * (right - left - 12);
  const y = (part) => bottom - 6 - part * (bottom - top - 12);
  return [
    text(up.name, 4, 12), text(across.name, (left + right) / 2, PAIRS_HEIGHT - 6, "middle"),
    draw("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }), draw("line", { class: "axis", x1: left, x2: left, y1: top, y2: bottom }),
    ...spaced(across.labels, x, width).map(([label, part]) => text(label, x(part), bottom + 16, "middle")),
    ...up.labels.map(([label, part]) => text(label, left - 5, y(part) + 4, "end")),
    ...shown.toReversed().map((trial) => draw("circle", {
      class: matches(trial) ? `rank-${rank(trial.rank, trials.shown.length)}` : "out", cx: x(across.part(trial.params[names[0]])).toFixed(1),
      cy: y(up.part(trial.params[names[1]])).toFixed(1), r: 3 + rank(trial.rank, trials.shown.length) / 2,
    }, `trial ${trialLabel(trial)}: ${number(trial.so_far)}`)),
  ];
}

async function showPareto() {
  const front = await request(`${here}/pareto`);
  const names = Object.keys(front.objectives);
  const params = [...new Set(front.trials.flatMap((trial) => Object.keys(trial.params)))];
  const reference = Object.entries(front.reference).map(([name, value]) => `${name} ${number(value)}`).join(", ");
  show("pareto-caption", front.trials.length
    ? `${front.trials.length} of ${front.candidates} feasible trials are not dominated by another one. Hypervolume: ${number(front.hypervolume)}, beyond ${reference}.`
    : "No trial has a value yet.");
  const isFlat = names.length === 1 || !front.trials.length;
  chart(element("pareto"), element("pareto-legend"), {
    lines: [], dots: isFlat ? [] : front.trials.map((trial) => ({
      name: `trial ${trial.label}`, key: trial.label, kind: "complete", place: trial.values[names[0]], value: trial.values[names[1]],
    })),
    legend: isFlat ? [] : [["dot complete", "trials on the front, by the first two objectives"]], across: names[0], down: names[1] ?? "",
    scale: "linear", isWhole: false, readout: "pareto-at",
  });
  fill(element("pareto-head"), [names], () => "names", () => ["trial", ...names, "step", ...params]);
  fill(element("pareto-values"), front.trials, (trial) => trial.key, (trial) => (
    [trial.label, ...names.map((name) => number(trial.values[name])), trial.step, ...params.map((name) => name in trial.params ? setting(trial.params[name]) : "")]
  ));
}

async function showAnalysis() {
  if (trials.metric === null) return;
  const { seconds, norms, best } = await request(`${here}/analysis`);
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
    legend: norms.map(({ metric }, index) => [kindOf(index), metric]), across: "step", down: "norm", scale: "linear",
  });
  fill(element("norm-values"), norms, (norm) => norm.metric, ({ metric, points }) => {
    const values = points.map(([, value]) => value).filter(Number.isFinite);
    return [metric, number(values[0]), number(Math.min(...values)), number(Math.max(...values)), number(values.at(-1))];
  });
}

const kindOf = (index) => `layer-${index % 4}`;

async function showChanges() {
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
