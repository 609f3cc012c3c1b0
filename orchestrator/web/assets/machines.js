// The machines of each cluster, and which sweep uses how much of them.

import { watch } from "./events.js";
import { refresher, request, signedIn } from "./requests.js";
import { brief, element, plural, show } from "./shown.js";
import { bar, fill, sweepLink } from "./tables.js";

const EVERY_MS = 10_000; // running trials change without a change of the queue

const LETTERS = 8;

const refresh = refresher(read);

async function read() {
  const { pools } = await request("/pool");
  const machines = pools.flatMap((pool) => pool.nodes.map((node) => ({ pool, node })));
  const uses = pools.flatMap((pool) => pool.uses.map((use) => ({ pool, use })));
  const hosts = pools.flatMap((pool) => Object.entries(pool.running).map(([host, running]) => ({ pool, host, running })));
  element("pools-empty").hidden = pools.length > 0;
  show("summary", pools.length ? `${plural(pools.length, "cluster")}, ${plural(machines.length, "machine")}.` : "");
  element("pools").closest("section").hidden = pools.length === 1; // its use is that of its machines
  fill(element("pools"), pools, (pool) => pool.id, (pool) => [
    short(pool.id), plural(pool.nodes.length, "machine"), used(pool.cpu, pool.free_cpu, `cores of ${pool.id}`),
    pool.devices ? used(pool.devices, pool.free_devices, `GPUs of ${pool.id}`) : "none",
  ]);
  fill(element("machines"), machines, ({ pool, node }) => `${pool.id} ${node.name}`, ({ pool, node }) => [
    machine(pool, node), short(pool.id), brief(node.cpu), node.devices, shares(node.shares),
  ]);
  fill(element("hosts"), hosts, ({ pool, host }) => `${pool.id} ${host}`, ({ pool, host, running }) => [
    host, short(pool.id), shares(running),
  ]);
  fill(element("uses"), uses, ({ pool, use }) => `${pool.id} ${use.sweep}`, ({ pool, use }) => [
    sweepLink(use.sweep), use.owner, use.priority_class, use.trials, use.share, use.wanted, brief(use.cpu), brief(use.devices), short(pool.id),
  ]);
}

// The beginning of an ID of Ray, which has up to 56 digits, with the whole one as hover text.
function short(id, name = id.slice(0, LETTERS)) {
  const shown = document.createElement("span");
  shown.title = id;
  shown.textContent = name;
  return shown;
}

// The only machine of a cluster is the only host that reports; the ledger does not say which of several it is.
function machine(pool, node) {
  const hosts = Object.keys(pool.running);
  return short(node.name, pool.nodes.length === 1 && hosts.length === 1 ? hosts[0] : undefined);
}

function used(whole, free, label) {
  const shown = document.createElement("span");
  shown.append(bar(whole - free, whole || 1, label), ` ${brief(whole - free)} of ${brief(whole)}`);
  return shown;
}

function shares(trials) {
  const shown = document.createElement("span");
  Object.entries(trials).forEach(([sweep, count], index) => {
    shown.append(index ? ", " : "", `${count} of `, sweepLink(sweep));
  });
  return shown;
}

await signedIn();
watch({ listed: true }, refresh);
setInterval(refresh, EVERY_MS);
