// The learning curves of a sweep: the chosen, the running or the best trials, and the band of all others.

import { chart, light } from "./charts.js";
import { count, element, number, plural, show } from "./shown.js";
import { fill } from "./tables.js";

const BAND_ROWS = 25;
const labelOf = ({ trial }) => trial.slice(trial.lastIndexOf("-") + 1); // its number, or `c` and its number
const RUNNING_KINDS = 8; // classes of running lines, each with its own colour and dashes
const MOST_NAMED = 6;
const AXES = {
  step: { name: "step", place: (curve) => curve.points.map(([step]) => step) },
  seconds: { name: "seconds since its start", place: (curve) => curve.seconds },
  examples: { name: "examples", place: (curve) => curve.points.map(([step]) => step * curve.batch_size) },
};

// Shows the curves of one metric, and of a second one if there is one.
//
// found: answers of the API, of one or two metrics.
// view: `scale` (null for one that suits the values), `axis`, `smoothing` from 0 to 1, and `isChosen` if the trials are
//   those of the table.
// pick: called with the label of a trial that is clicked.
export function showCurves([first, second], view, pick) {
  offer(element("metric"), first.metrics, first.metric);
  offer(element("metric-beside"), ["", ...first.metrics.filter((name) => name !== first.metric)], second?.metric ?? "");
  show("curves-metric-count", plural(first.metrics.length, "metric"));
  element("curves-empty").hidden = first.curves.length > 0;
  const best = first.curves.find((curve) => curve.state !== "RUNNING" && curve.state !== "FAILED");
  const hasExamples = first.curves.length > 0 && first.curves.every((curve) => curve.batch_size !== null);
  element("axis").querySelector("[value=examples]").hidden = !hasExamples;
  const axis = view.axis === "examples" && !hasExamples ? "step" : view.axis;
  const drawn = draw("curves", first, best, { ...view, axis }, pick);
  element("curves-beside").closest("div").hidden = !second;
  if (second) draw("curves-beside", second, best, { ...view, axis, scale: null }, pick);
  show("curves-gaps", gaps(first));
  fill(element("curve-values"), first.curves, (curve) => curve.trial, (curve) => {
    const values = curve.points.map(([, value]) => value).filter(Number.isFinite);
    return [
      labelOf(curve), curve.state, curve.points.length, curve.points.at(-1)?.[0], number(values.at(-1)),
      number(values.length ? Math.min(...values) : null), number(values.length ? Math.max(...values) : null),
    ];
  });
  const { points } = first.band;
  const every = Math.ceil(points.length / BAND_ROWS);
  const rows = points.filter((_, index) => index % every === 0 || index === points.length - 1);
  element("band-table").hidden = !rows.length;
  fill(element("band-values"), rows, ([step]) => step, ([step, ...values]) => [count(step), ...values.map((value) => number(value))]);
  return drawn;
}

// Makes the curve of a trial stand out, or none if the label is null.
export const lightCurve = (trial) => ["curves", "curves-beside"].forEach((id) => light(element(id), trial));

function draw(id, { curves, band, metric, references }, best, { scale, axis, smoothing, isChosen }, pick) {
  const { name, place } = AXES[axis];
  const lines = curves.toReversed().map((curve) => {
    const isBest = curve.trial === best?.trial;
    const places = place(curve);
    return {
      name: `trial ${labelOf(curve)}`, key: labelOf(curve), kind: kindOf(curve, isBest),
      points: smoothed(curve.points.map(([, value], index) => [places[index], value]), smoothing),
      label: isBest || isChosen || curve.state === "RUNNING" ? labelOf(curve) : null,
    };
  });
  const others = axis === "step" ? band : { trials: 0, points: [] }; // a band has steps alone
  return chart(element(id), element(`${id}-legend`), {
    lines, band: others.points, legend: legend(curves, best, others, isChosen), across: name, down: metric ?? "", scale,
    references, isWhole: axis !== "seconds", pick, readout: `${id}-at`,
  });
}

// An exponential moving average that gives its first values their whole weight.
function smoothed(points, weight) {
  if (!weight) return points;
  let [sum, count] = [0, 0];
  return points.map(([place, value]) => {
    if (!Number.isFinite(value)) return [place, value];
    sum = weight * sum + (1 - weight) * value;
    count = weight * count + (1 - weight);
    return [place, sum / count];
  });
}

function kindOf(curve, isBest) {
  if (isBest) return "best";
  return curve.state === "RUNNING" ? `running run-${curve.number % RUNNING_KINDS}` : "other";
}

function legend(curves, best, band, isChosen) {
  const running = curves.filter((curve) => curve.state === "RUNNING");
  const others = curves.length - running.length - (best ? 1 : 0);
  const named = running.length <= MOST_NAMED
    ? running.map((curve) => [kindOf(curve, false), `trial ${labelOf(curve)}, running`])
    : [[kindOf(running[0], false), `${plural(running.length, "running trial")}, with the number at the end`]];
  const bestText = best && `${isChosen ? "first of the table" : "best"}: trial ${labelOf(best)}${best.state === "COMPLETE" ? "" : `, ${best.state.toLowerCase()}`}`;
  return [
    ...(best ? [["best", bestText]] : []), ...named,
    ...(others > 0 ? [["other", isChosen ? `${plural(others, "other trial")} of the table` : `the next best ${plural(others, "trial")}`]] : []),
    ...(band.trials ? [
      ["band", `from the lowest to the highest of ${isChosen ? "all " : ""}${plural(band.trials, isChosen ? "trial" : "other trial")}`], ["median", "their median"],
    ] : []),
  ];
}

// Says from which step the metric has not been finite, and in which trials.
function gaps({ curves, metric }) {
  const broken = curves
    .map((curve) => ({ trial: labelOf(curve), step: curve.points.find(([, value]) => value === null)?.[0] }))
    .filter(({ step }) => step !== undefined);
  if (!broken.length) return "";
  const named = broken.map(({ trial }) => trial).toSorted((one, other) => one.localeCompare(other, undefined, { numeric: true }));
  const more = named.length > MOST_NAMED ? ` and ${named.length - MOST_NAMED} more` : "";
  return `${metric} is NaN or infinite from step ${Math.min(...broken.map(({ step }) => step))} in `
    + `${named.length === 1 ? "trial" : "trials"} ${named.slice(0, MOST_NAMED).join(", ")}${more}`;
}

// Keeps a list of metrics as it is while it has the same names, so that it stays open and focused.
function offer(list, names, chosen) {
  if ([...list.options].map((option) => option.value).join() === names.join()) return;
  list.replaceChildren(...names.map((name) => new Option(name || "none", name, name === chosen, name === chosen)));
}
