// One stream of events for all tabs of a browser, which says what has changed.
//
// A browser opens six connections to a server over HTTP/1.1; with a stream in each tab, the seventh tab would
// wait for ever. The visible tab that holds a lock, the leader, therefore opens one stream for all visible tabs
// and tells them what it receives. When it is hidden or closed, another visible tab gets the lock.

import { RETRY_MS } from "./requests.js";
import { announce, element, show } from "./shown.js";

const NAME = "sweep-events";
const GATHER_MS = 200;
const REPEAT_MS = 20_000;
const FORGET_MS = 65_000;
const MOST_SWEEPS = 50;
const TEXTS = { live: "live", lost: `connection lost; reading every ${RETRY_MS / 1000} s` };

const own = crypto.randomUUID();
const channel = new BroadcastChannel(NAME);
const wishes = new Map(); // by tab: what it shows, and when it has said so
let wish = null;
let react = () => {};
let status = null;
let source = null; // of the leader
let covered = null; // what its stream tells
let attempt = null; // of this tab to become the leader
let resign = null; // ends the leadership

// Calls `changed` after every change of what the page shows: the list of sweeps with the queue (`listed`), or a
// sweep. While there is no stream it is called every five seconds.
export function watch({ listed = false, sweep = null }, changed) {
  wish = { listed, sweep };
  react = (names) => {
    const isOwn = (name) => (name.includes("/") ? name.startsWith(`${sweep}/`) : listed);
    if (names === null || names.some(isOwn)) changed();
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : join()));
  window.addEventListener("pagehide", leave);
  window.addEventListener("online", () => leads() && connect(true));
  window.addEventListener("offline", () => leads() && tell("lost"));
  setInterval(tick, RETRY_MS);
  setInterval(() => document.hidden || say("wish", { wish }), REPEAT_MS);
  if (!document.hidden) join();
}

const leads = () => resign !== null;
const say = (kind, content = {}) => channel.postMessage({ kind, from: own, ...content });

function join() {
  wishes.set(own, { ...wish, at: Infinity });
  say("hello", { wish });
  react(null);
  if (attempt) return;
  attempt = new AbortController();
  navigator.locks.request(NAME, { signal: attempt.signal }, lead).catch((error) => {
    if (error.name !== "AbortError") throw error;
  });
}

function lead() {
  return new Promise((resolve) => {
    resign = resolve;
    connect();
  });
}

function leave() {
  attempt?.abort(); // has no effect on a tab that leads
  resign?.();
  attempt = resign = null;
  close();
  say("leave");
}

function close() {
  source?.close();
  source = covered = null;
}

channel.addEventListener("message", ({ data: { kind, from, ...content } }) => {
  if (document.hidden) return;
  if (kind === "hello" || kind === "wish") {
    wishes.set(from, { ...content.wish, at: Date.now() });
    if (kind === "hello") say("wish", { wish });
    if (leads()) {
      setTimeout(connect, GATHER_MS);
      if (status) say("status", { status });
    }
  } else if (kind === "leave") wishes.delete(from);
  else if (kind === "status") showStatus(content.status);
  else if (kind === "changed") react(content.names);
});

// What visible tabs show; the most recent ones if they show too many sweeps.
function wanted() {
  for (const [tab, { at }] of wishes) if (Date.now() - at > FORGET_MS) wishes.delete(tab);
  const shown = [...wishes.values()].toSorted((one, other) => other.at - one.at);
  const sweeps = new Set(shown.map((each) => each.sweep).filter((sweep) => sweep !== null));
  return { listed: shown.some((each) => each.listed), sweeps: new Set([...sweeps].slice(0, MOST_SWEEPS)) };
}

// Opens the stream, if it is closed or does not tell all that visible tabs show.
function connect(anew = false) {
  if (!leads()) return;
  const { listed, sweeps } = wanted();
  const isOpen = source !== null && source.readyState !== EventSource.CLOSED;
  const tellsAll = isOpen && (covered.listed || !listed) && sweeps.isSubsetOf(covered.sweeps);
  if (tellsAll && !anew) return;
  close();
  covered = { listed, sweeps };
  const query = new URLSearchParams([["listed", listed], ...[...sweeps].toSorted().map((sweep) => ["sweep", sweep])]);
  source = new EventSource(`/api/v1/events?${query}`);
  source.addEventListener("open", () => tell("live"));
  source.addEventListener("error", () => tell("lost"));
  for (const kind of ["change", "resync"]) {
    source.addEventListener(kind, (event) => publish(Object.keys(JSON.parse(event.data))));
  }
}

// Without a stream the leader lets all tabs read, and opens it again: browsers give a stream up for good after
// an answer such as 502.
function tick() {
  if (!leads() || status !== "lost") return;
  publish(null);
  connect();
}

function publish(names) {
  say("changed", { names });
  react(names);
}

function tell(found) {
  const isLoss = found === "lost" && status !== "lost";
  say("status", { status: found });
  showStatus(found);
  if (isLoss) publish(null);
}

function showStatus(found) {
  if (status !== null && found !== status) announce("connection", found === "live" ? "live again" : TEXTS[found]);
  status = found;
  show("connection", TEXTS[found]);
  element("connection").dataset.status = found;
}
