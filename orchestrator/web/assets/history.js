// The best value so far over the trials of a sweep, in the order of their ends: is it still improving?

import { chart } from "./charts.js";
import { duration, element, number, plural, show } from "./shown.js";
import { fill } from "./tables.js";

const MOST_ROWS = 100; // of the table, the latest

// Draws the history.
//
// history: for each trial its place in the order of the ends, number, state and value, and the best value so far.
// improvement: the trial that improved last, and the number of trials since, or null.
// metric: objective.
// pick: called with the number of a trial that is clicked.
export function showHistory(history, improvement, metric, pick) {
  element("history-empty").hidden = history.length > 0;
  show("improvement", improvementText(improvement));
  const best = history.findLast((entry) => entry.is_improvement);
  const stairs = history.flatMap(({ place, best: value }, index) => (
    index && history[index - 1].best !== value ? [[place, history[index - 1].best], [place, value]] : [[place, value]]
  ));
  const kinds = [...new Set(history.map(kindOf))].filter((kind) => kind !== "best");
  chart(element("history"), element("history-legend"), {
    lines: history.length ? [{ name: "best so far", kind: "best", points: stairs }] : [],
    dots: history.map((entry) => ({
      name: `trial ${entry.number}`, key: entry.number, kind: entry === best ? "best" : kindOf(entry), place: entry.place, value: entry.value,
    })),
    legend: history.length ? [["best", "best so far"], ...kinds.map((kind) => [`dot ${kind}`, `${kind} trials`])] : [],
    across: "trials, in the order of their ends", down: metric ?? "", pick, readout: "history-at",
  });
  fill(element("history-values"), history.slice(-MOST_ROWS).toReversed(), ({ number: trial }) => trial, (entry) => [
    entry.number, entry.state, number(entry.value), number(entry.best),
  ]);
}

const kindOf = ({ state }) => ({ COMPLETE: "complete", PRUNED: "pruned", DIVERGED: "diverged" }[state] ?? "running");

function improvementText(improvement) {
  if (!improvement) return "";
  const gain = improvement.gain === null ? "" : `, by ${number(improvement.gain)}`;
  const ago = improvement.at === null ? "" : ` (${duration(Date.now() / 1000 - improvement.at)} ago)`;
  const since = improvement.since ? `${plural(improvement.since, "trial")} ago` : "the latest trial";
  return `Last improvement: trial ${improvement.trial}${gain}, ${since}${ago}.`;
}
