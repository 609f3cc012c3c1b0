// People: roles, tokens' ends, use against quota, hours used, and the audit log. An admin edits, others see their own
// lines. Everyone but a viewer edits their own targets of notifications.

import { confirmed } from "./dialogs.js";
import { watch } from "./events.js";
import { refresher, request, showProblem, signedIn } from "./requests.js";
import { ago, brief, element, setting, show } from "./shown.js";
import { bar, fill } from "./tables.js";

const ROWS = 50;
const MOST_COSTS = 100;

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
  await readCost(isAdmin);
  if (user.role !== "viewer") paintNotices((await request("/notices")).notices);
  if (isAdmin) await readAudit();
}

// Shows the rows with the most hours.
async function readCost(isAdmin) {
  const { cost } = await request("/cost", "POST", {});
  const seen = cost.filter(({ owner }) => isAdmin || owner === user.name);
  const rows = seen.toSorted((one, other) => other.gpu_hours - one.gpu_hours || other.core_hours - one.core_hours);
  fill(element("cost"), rows.slice(0, MOST_COSTS), ({ sweep, device }) => `${sweep} ${device}`, (row) => [
    row.owner ?? "", link(row.sweep), row.device, brief(row.trial_hours), brief(row.core_hours), brief(row.gpu_hours),
  ]);
  element("cost-more").hidden = rows.length <= MOST_COSTS;
  show("cost-more", `${rows.length - MOST_COSTS} more rows: sweep cost`);
}

function link(sweep) {
  const shown = document.createElement("a");
  shown.href = `/sweeps/${encodeURIComponent(sweep)}`;
  shown.textContent = sweep;
  return shown;
}

function paintNotices(notices) {
  fill(element("notices"), notices, ({ number, target, name }) => `${number} ${target} ${name}`, ({ number, target, name, events }) => [
    target, name ? `sweeps whose file names ${name}` : "your sweeps", name ? "those of the file" : events.join(", ") || "all",
    removal(number, target),
  ]);
}

function removal(number, target) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.remove = number;
  button.textContent = "Remove";
  button.setAttribute("aria-label", `Remove ${target}`);
  return button;
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
element("notices").addEventListener("click", async ({ target }) => {
  if (!target.dataset.remove) return;
  const left = await showProblem(() => request(`/notices/${target.dataset.remove}`, "DELETE"));
  if (left) paintNotices(left.notices);
});
element("add-notice").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { target, name } = Object.fromEntries(new FormData(event.target));
  const added = await showProblem(() => request("/notices", "POST", { target, name }));
  if (!added) return;
  event.target.reset();
  paintNotices(added.notices);
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
element("notices-section").hidden = user.role === "viewer";
element("new-token").hidden = user.subject === null;
element("only-own").hidden = user.role === "admin";
watch({ listed: true }, refresh);
