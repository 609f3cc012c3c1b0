// The form that starts a sweep: files to begin with, and what the file would run while it is written.

import { confirmed } from "./dialogs.js";
import { request, showProblem, signedIn } from "./requests.js";
import { announce, duration, element, show } from "./shown.js";
import { fill, sweepAddress } from "./tables.js";

const PAUSE_MS = 1_500; // after the last key: a user may check thirty files a minute

let timer = null;
let asked = 0;
let key = crypto.randomUUID(); // of this text: sending it twice starts one sweep

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

function file() {
  return {
    name: element("name").value,
    text: element("text").value,
    profile: element("profile").value || "auto",
    overrides: lines(element("overrides").value),
  };
}

async function check() {
  const sent = file();
  asked += 1;
  const mine = asked;
  if (!sent.name || !sent.text.trim()) {
    showChecked({ refusals: [], plan: null }, "");
    return;
  }
  show("checked", "Checking ...");
  try {
    const found = await request("/validate", "POST", sent);
    if (mine === asked) showChecked(found, found.plan ? "This file can be started." : "This file is refused.");
  } catch (error) {
    if (mine === asked) showChecked({ refusals: [], plan: null }, error.message);
  }
}

function showChecked({ refusals, plan }, summary) {
  show("checked", summary);
  if (summary) announce("checked", [summary, ...refusals.map(({ where, must }) => `${where}: ${must}`)].join(" "));
  element("text").setAttribute("aria-invalid", refusals.length > 0);
  element("refusals-part").hidden = !refusals.length;
  fill(element("refusals"), refusals, ({ where, must }) => `${where} ${must}`, ({ where, must, got, remedy }) => [
    place(where), must, got, remedy,
  ]);
  const facts = plan ? [
    ["sweep", plan.id], ["task", plan.task], ["decides", `${plan.metric}, ${plan.direction === "minimize" ? "smaller" : "larger"} is better`],
    ["trials", `at most ${plan.trials}, ${plan.at_once} at a time on this machine`],
    ["steps of a trial", plan.steps ?? "the file does not say"], ["data", plan.data ?? "none"],
    ["sizes", plan.match ?? ""],
    ["time", plan.seconds === null ? "not known: no earlier sweep has measured it" : `${duration(plan.seconds)} a trial, as an earlier sweep has measured`],
  ].filter(([, value]) => value !== "") : [];
  element("plan-part").hidden = !plan;
  fill(element("plan"), facts, ([name]) => name, ([name, value]) => [name, value]);
}

// Where a mistake is; a line of the file is a button that selects it.
function place(where) {
  const line = /\.yaml:(\d+)(?::|$)/.exec(where)?.[1];
  if (!line) return where;
  const shown = document.createElement("button");
  shown.type = "button";
  shown.dataset.line = line;
  shown.textContent = where;
  return shown;
}

function select(line) {
  const text = element("text");
  const written = text.value.split("\n");
  const before = written.slice(0, line - 1);
  const start = before.join("\n").length + (before.length ? 1 : 0);
  text.focus();
  text.setSelectionRange(start, start + (written[line - 1]?.length ?? 0));
  text.scrollTop = (text.scrollHeight / written.length) * Math.max(0, line - 5); // the lines before it stay in view
}

// Replaces the text by that of another file, and checks it at once; asks first if there is a text.
async function insert(what, read) {
  if (element("text").value.trim() && !(await confirmed(`Replace the text by ${what}?`, "Replace it"))) return;
  const found = await showProblem(read);
  if (!found) return;
  element("name").value = found.name;
  element("text").value = found.text;
  changed();
  clearTimeout(timer);
  check();
}

const insertFile = (sent) => insert(sent.name, async () => ({
  name: sent.name.replace(/\.ya?ml$/, "").replace(/[^A-Za-z0-9_-]+/g, "-"), text: await sent.text(),
}));

// Fills the form with the file of a sweep; of a trial, with its settings as the only ones to try.
async function repeat(sweep, trial) {
  const path = `/sweeps/${encodeURIComponent(sweep)}`;
  const [{ text, profile }, found] = await Promise.all([request(path), trial === null ? null : request(`${path}/trials/${trial}`)]);
  const name = sweep.replace(/-[0-9a-f]{8}$/, "").replace(new RegExp(`-${profile ?? ""}$`), "");
  element("profile").value = profile ?? "full";
  element("new").checked = true;
  if (found !== null) {
    element("overrides").value = [`try=${JSON.stringify([found.trial.params])}`, "budget.trials=1"].join("\n");
  }
  if (found !== null) element("overrides").closest("details").open = true;
  show("from", `Again: ${sweep}${trial === null ? "" : `, with the settings of trial ${trial} first`}. Change what should differ.`);
  await insert(sweep, () => ({ name, text }));
}

function changed() {
  key = crypto.randomUUID();
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE_MS);
}

element("submit").addEventListener("input", changed);
element("refusals").addEventListener("click", ({ target }) => target.dataset.line && select(Number(target.dataset.line)));
element("example").addEventListener("click", () => insert("the example", () => request("/example")));
element("shipped").addEventListener("change", async ({ target }) => {
  const { value: name } = target;
  if (name) await insert(name, () => request(`/example?${new URLSearchParams({ name })}`));
  target.value = "";
});
element("upload").addEventListener("change", async ({ target }) => {
  if (target.files.length) await insertFile(target.files[0]);
  target.value = "";
});
element("text").addEventListener("dragover", (event) => event.preventDefault());
element("text").addEventListener("drop", (event) => {
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  insertFile(event.dataTransfer.files[0]);
});
element("submit").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = element("start");
  button.disabled = true;
  const body = { ...file(), new: element("new").checked };
  const submitted = await showProblem(() => request("/sweeps", "POST", body, { "Idempotency-Key": key }));
  button.disabled = false;
  if (submitted) location.assign(sweepAddress(submitted.id));
});

const user = await signedIn();
element("submit").hidden = user.role === "viewer";
element("viewer").hidden = user.role !== "viewer";
const given = new URLSearchParams(location.search);
if (given.has("sweep") && user.role !== "viewer") await showProblem(() => repeat(given.get("sweep"), given.get("trial")));
