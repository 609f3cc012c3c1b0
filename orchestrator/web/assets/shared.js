// What all pages share: requests, the stream of events, and tables that keep their rows and the focus.

const CHANGE = { "X-Sweep-Change": "1", "Content-Type": "application/json" };
const PAINT_MS = 500;
const ANNOUNCE_MS = 10_000;

export const element = (id) => document.getElementById(id);

export async function request(path, method = "GET", body = undefined) {
  const headers = method === "GET" ? {} : CHANGE;
  const content = body === undefined ? undefined : JSON.stringify(body);
  const answer = await fetch(`/api/v1${path}`, { method, headers, body: content });
  if (answer.status === 401 && location.pathname !== "/sign-in") {
    location.assign("/sign-in");
    return new Promise(() => {}); // nothing of this page goes on
  }
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.detail);
  return found;
}

export async function showProblem(action) {
  element("problem").textContent = "";
  try {
    return await action();
  } catch (error) {
    element("problem").textContent = error.message;
    return undefined;
  }
}

export async function signedIn() {
  const user = await request("/me");
  element("user").textContent = `${user.name} (${user.role})`;
  const out = element("sign-out");
  out.hidden = false;
  out.addEventListener("click", async () => {
    await request("/session", "DELETE");
    location.assign("/sign-in");
  });
  return user;
}

// Calls `paint` with all entries after every event, at most twice a second. A hidden page holds no connection:
// browsers open only a few to one server, and a page that waits for one shows nothing.
export function watch(path, paint) {
  const entries = new Map();
  let source = null;
  let timer = null;

  function changed() {
    timer ??= setTimeout(() => {
      timer = null;
      paint(entries);
    }, PAINT_MS);
  }

  function take(event) {
    if (event.type === "resync") entries.clear();
    for (const [name, entry] of Object.entries(JSON.parse(event.data))) {
      if (entry === null) entries.delete(name);
      else entries.set(name, entry);
    }
    element("connection").textContent = "live";
    changed();
  }

  function open() {
    if (document.hidden || source !== null) return;
    source = new EventSource(`/api/v1${path}`);
    source.addEventListener("resync", take);
    source.addEventListener("change", take);
    source.addEventListener("error", () => {
      element("connection").textContent = "connection lost; trying again";
    });
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden && source !== null) {
      source.close();
      source = null;
    }
    open();
  });
  open();
}

// Rows are kept by their key and only cells that differ are written, so that the focus stays where it is.
export function fill(body, rows, key, cells) {
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  rows.forEach((entry, index) => {
    const name = String(key(entry));
    const row = known.get(name) ?? document.createElement("tr");
    known.delete(name);
    row.dataset.key = name;
    cells(entry).forEach((content, column) => put(row, column, content));
    if (body.rows[index] !== row) body.insertBefore(row, body.rows[index] ?? null);
  });
  for (const row of known.values()) row.remove();
}

function put(row, column, content) {
  const cell = row.cells[column] ?? row.insertCell();
  const text = content instanceof Node ? content.outerHTML : String(content ?? "");
  if (cell.dataset.shown === text) return;
  cell.dataset.shown = text;
  if (content instanceof Node) cell.replaceChildren(content);
  else cell.textContent = text;
}

export function link(sweep) {
  const anchor = document.createElement("a");
  anchor.href = `/sweeps/${encodeURIComponent(sweep)}`;
  anchor.textContent = sweep;
  return anchor;
}

export function bar(value, most, label) {
  const shown = document.createElement("progress");
  shown.max = most;
  shown.value = value;
  shown.setAttribute("value", value);
  shown.setAttribute("aria-label", label);
  return shown;
}

export const number = (value) => (typeof value === "number" ? Number(value.toPrecision(5)).toString() : value ?? "");
export const parameters = (params) => Object.entries(params).map(([name, value]) => `${name} ${number(value)}`).join(", ");
export const time = (seconds) => new Date(seconds * 1000).toLocaleString();

let announcedAt = 0;
export function announce(text) {
  if (Date.now() - announcedAt < ANNOUNCE_MS) return;
  announcedAt = Date.now();
  element("announcement").textContent = text;
}
