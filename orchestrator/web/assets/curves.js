// The learning curves of a sweep: the running trials, the best ones, and the band of all others.

import { chart } from "./charts.js";
import { element, number, plural, show } from "./shown.js";
import { fill } from "./tables.js";

const BAND_ROWS = 25;

export function showCurves({ curves, band, metric, metrics }) {
  offer(metrics, metric);
  element("curves-empty").hidden = curves.length > 0;
  const best = curves.find((curve) => curve.state !== "RUNNING");
  const lines = curves.toReversed().map((curve) => ({
    name: `trial ${curve.number}`,
    kind: kindOf(curve, best),
    points: curve.points,
    label: curve === best || curve.state === "RUNNING" ? `${curve.number}` : null,
  }));
  chart(element("curves"), element("curves-legend"), {
    lines, band: band.points, legend: legend(curves, best, band), across: "step", down: metric ?? "",
  });
  fill(element("curve-values"), curves, (curve) => curve.trial, (curve) => {
    const values = curve.points.map(([, value]) => value).filter(Number.isFinite);
    return [
      curve.number, curve.state, curve.points.length, curve.points.at(-1)?.[0], number(values.at(-1)),
      number(values.length ? Math.min(...values) : null), number(values.length ? Math.max(...values) : null),
    ];
  });
  const every = Math.ceil(band.points.length / BAND_ROWS);
  const rows = band.points.filter((_, index) => index % every === 0 || index === band.points.length - 1);
  element("band-table").hidden = !rows.length;
  fill(element("band-values"), rows, ([step]) => step, (row) => row.map((value) => number(value)));
}

function kindOf(curve, best) {
  if (curve === best) return "best";
  return curve.state === "RUNNING" ? "running" : "other";
}

function legend(curves, best, band) {
  const running = curves.filter((curve) => curve.state === "RUNNING").length;
  const others = curves.length - running - (best ? 1 : 0);
  return [
    ...(best ? [["best", `best: trial ${best.number}`]] : []),
    ...(running ? [["running", `${plural(running, "running trial")}, with the number at the end`]] : []),
    ...(others > 0 ? [["other", `the next best ${plural(others, "trial")}`]] : []),
    ...(band.trials ? [
      ["band", `from the lowest to the highest of ${plural(band.trials, "other trial")}`], ["median", "their median"],
    ] : []),
  ];
}

// Keeps the list of metrics as it is while it has the same names, so that it stays open and focused.
function offer(metrics, metric) {
  const list = element("metric");
  if ([...list.options].map((option) => option.value).join() === metrics.join()) return;
  list.replaceChildren(...metrics.map((name) => new Option(name, name, name === metric, name === metric)));
  show("curves-metric-count", plural(metrics.length, "metric"));
}
