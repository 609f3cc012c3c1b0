// Texts of the page: written only when they differ, and spoken at most every ten seconds.

const ANNOUNCE_MS = 10_000;

export const element = (id) => document.getElementById(id);

// A text that is written again, unchanged, would lose its selection and be spoken again.
export function show(id, text) {
  const node = element(id);
  const content = String(text ?? "");
  if (node.textContent !== content) node.textContent = content;
}

const MOST_WHOLE = 1e15; // of the whole hyperparameters that are written with all their digits

// A measured value with four significant digits, as `number` of orchestrator/report/words.py writes it.
export function number(value, digits = 4) {
  if (typeof value !== "number") return value ?? "";
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const [mantissa, power] = value.toExponential(digits - 1).split("e").map(Number);
  return power >= -3 && power < 5 ? value.toFixed(Math.max(0, digits - 1 - power)) : `${mantissa}e${power}`;
}

// The same without zeros at the end of its decimals.
export function brief(value, digits = 4) {
  const text = String(number(value, digits));
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

// A whole number, such as a step, with separators.
export const count = (value) => (typeof value === "number" ? value.toLocaleString("en") : value ?? "");

// A hyperparameter, as `setting` of orchestrator/report/words.py writes it: null, lists and mappings as JSON.
export function setting(value) {
  if (value !== undefined && typeof value === "object") return JSON.stringify(value);
  return Number.isInteger(value) && Math.abs(value) < MOST_WHOLE ? String(value) : brief(value);
}

export const parameters = (params) => Object.entries(params).map(([name, value]) => `${name} ${setting(value)}`).join(", ");
const written = (format) => (seconds) => (seconds === null || seconds === undefined ? "" : format.format(seconds * 1000));
export const time = written(new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" }));
export const minute = written(new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" }));
export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

// A number with so many decimals, a tie to the even digit, as Python writes it.
const decimals = (digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits, useGrouping: false, roundingMode: "halfEven" });
const [WHOLE, TENTHS] = [decimals(0), decimals(1)];

// Seconds in one unit, as `duration` of orchestrator/report/words.py writes them.
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const shown = Math.max(0, seconds);
  if (shown < 90) return `${WHOLE.format(shown)} s`;
  return shown < 5_400 ? `${TENTHS.format(shown / 60)} min` : `${TENTHS.format(shown / 3_600)} h`;
}

const UNITS = [[86_400, "day"], [3_600, "h"], [60, "min"], [1, "s"]];
const ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone;
const DATED_SECONDS = 7 * 86_400; // from this age on the date says more than the number of days

// A time relative to now, such as "2 min ago" or "in 3 days", with the date and the time zone as hover text.
export function ago(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const distance = Date.now() / 1000 - seconds;
  const shown = document.createElement("time");
  shown.dateTime = new Date(seconds * 1000).toISOString();
  shown.title = `${time(seconds)}, ${ZONE}`;
  shown.textContent = Math.abs(distance) > DATED_SECONDS ? minute(seconds) : relative(distance);
  return shown;
}

function relative(distance) {
  const [size, name] = UNITS.find(([unit]) => Math.abs(distance) >= unit) ?? [1, "s"];
  const count = Math.floor(Math.abs(distance) / size);
  if (count < 1) return "now";
  const amount = name === "day" ? plural(count, name) : `${count} ${name}`;
  return distance > 0 ? `${amount} ago` : `in ${amount}`;
}

// Trials that will not run again, of their numbers by state.
export const settled = (states) => ["COMPLETE", "PRUNED", "DIVERGED", "FAILED"].reduce((sum, state) => sum + (states[state] ?? 0), 0);

const waiting = new Map();
const spoken = new Map();
let timer = null;

// Lets a screen reader speak a text about a subject. Of several within ten seconds, the last one is spoken.
export function announce(subject, text) {
  if (text === spoken.get(subject)) waiting.delete(subject);
  else waiting.set(subject, text);
  if (waiting.size) timer ??= setTimeout(speak, 0);
}

function speak() {
  if (waiting.size) {
    element("announcement").textContent = [...waiting.values()].join(". ");
    for (const [subject, text] of waiting) spoken.set(subject, text);
    waiting.clear();
    timer = setTimeout(speak, ANNOUNCE_MS);
  } else {
    timer = null;
  }
}
