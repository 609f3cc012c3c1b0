// People: roles, tokens' ends, use against quota, and the audit log. An admin edits, others see their own line.

import { confirmed } from "./dialogs.js";
import { watch } from "./events.js";
import { refresher, request, showProblem, signedIn } from "./requests.js";
import { ago, brief, element, setting, show } from "./shown.js";
import { bar, fill } from "./tables.js";

const ROWS = 50;

let quotas = new Map();
let entries = []; // of the audit log, the newest first
let user = null;

const refresh = refresher(read);

async function read() {
  const isAdmin = user.role === "admin";
  const people = isAdmin ? (await request("/users")).users : [user];
  const found = await Promise.all(people.map(({ name }) => request(`/quotas/${encodeURIComponent(name)}`)));
  quotas = new Map(found.map((quota) => [quota.owner, quota]));
  const { queue } = await request("/queue");
  fill(element("people"), people, ({ name }) => name, (person) => {
    const quota = quotas.get(person.name);
    const sweeps = queue.filter(({ owner }) => owner === person.name).length;
    return [
      person.name, person.role, token(person), quota.sweeps === null ? sweeps : `${sweeps} of ${quota.sweeps}`,
      hours(quota), brief(quota.share), brief(quota.weight), isAdmin ? actions(person) : "",
    ];
  });
  if (isAdmin) await readAudit();
}

async function readAudit() {
  const { audit } = await request(`/audit?limit=${ROWS}`);
  if (entries.length === 0) element("older").hidden = audit.length < ROWS;
  const newest = entries[0]?.seq ?? 0;
  entries = [...audit.filter(({ seq }) => seq > newest), ...entries];
  paintAudit();
}

function paintAudit() {
  fill(element("audit"), entries, ({ seq }) => seq, (entry) => [
    ago(entry.at), entry.actor, entry.action, entry.target,
    Object.entries(entry.detail).map(([name, value]) => `${name} ${setting(value)}`).join(", "),
  ]);
}

function token({ revoked_at: revoked, expires_at: expires }) {
  const shown = document.createElement("span");
  if (revoked !== null) shown.append("revoked ", ago(revoked));
  else if (expires === null) shown.append("never expires");
  else shown.append(expires * 1000 < Date.now() ? "expired " : "expires ", ago(expires));
  return shown;
}

function hours({ owner, used_gpu_hours: used, gpu_hours: most }) {
  if (most === null) return `${brief(used)}, no limit`;
  const shown = document.createElement("span");
  shown.append(bar(used, most || 1, `GPU-hours of ${owner}`), ` ${brief(used)} of ${brief(most)}`);
  return shown;
}

function actions(person) {
  const shown = document.createElement("span");
  const offers = [["quota", "Quota ..."], ...(person.revoked_at === null ? [["revoke", "Revoke ..."]] : [])];
  offers.forEach(([name, text], index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset[name] = person.name;
    button.textContent = text;
    shown.append(index ? " " : "", button);
  });
  return shown;
}

async function revoke(name) {
  if (!(await confirmed(`Revoke the token of ${name}? Its sessions end at once; its sweeps go on.`, "Revoke it"))) return;
  if (await showProblem(() => request(`/users/${encodeURIComponent(name)}`, "DELETE"))) refresh();
}

function edit(name) {
  const form = element("quota");
  form.hidden = false;
  form.dataset.owner = name;
  show("quota-of", `Quota of ${name}`);
  for (const field of ["weight", "share", "gpu_hours", "sweeps"]) form.elements[field].value = quotas.get(name)[field] ?? "";
  form.elements.weight.focus();
}

element("people").addEventListener("click", ({ target }) => {
  if (target.dataset.revoke) revoke(target.dataset.revoke);
  if (target.dataset.quota) edit(target.dataset.quota);
});
element("quota-cancel").addEventListener("click", () => (element("quota").hidden = true));
element("quota").addEventListener("submit", async (event) => {
  event.preventDefault();
  const given = [...new FormData(event.target)].filter(([, value]) => value !== "").map(([name, value]) => [name, Number(value)]);
  const path = `/quotas/${encodeURIComponent(event.target.dataset.owner)}`;
  if (!(await showProblem(() => request(path, "PATCH", Object.fromEntries(given))))) return;
  element("quota").hidden = true;
  refresh();
});
element("add").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { name, role, days } = Object.fromEntries(new FormData(event.target));
  const added = await showProblem(() => request("/users", "POST", { name, role, days: days === "" ? null : Number(days) }));
  if (!added) return;
  event.target.reset();
  show("token", `The token of ${added.name}, which is shown only now: ${added.token}`);
  refresh();
});
element("new-token").addEventListener("click", async () => {
  if (!(await confirmed("Replace your token? Programs with an earlier one are refused at once; browsers stay signed in.", "Replace it"))) return;
  const renewed = await showProblem(() => request("/me/token", "POST"));
  if (renewed) show("token", `Your token, which is shown only now: ${renewed.token}`);
});
element("older").addEventListener("click", async () => {
  const found = await showProblem(() => request(`/audit?limit=${ROWS}&before=${entries.at(-1).seq}`));
  if (!found) return;
  entries = [...entries, ...found.audit];
  element("older").hidden = found.audit.length < ROWS;
  paintAudit();
});

user = await signedIn();
element("admin").hidden = user.role !== "admin";
element("new-token").hidden = user.subject === null;
element("only-own").hidden = user.role === "admin";
watch({ listed: true }, refresh);
