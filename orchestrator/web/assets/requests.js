// Requests to the API, their problems, and the user who has signed in.

import { showMissing } from "./missing.js";
import { announce, element, show } from "./shown.js";

const CHANGE = { "X-Sweep-Change": "1", "Content-Type": "application/json" };
const NEXT = "page after signing in";
const PATIENCE_MS = 90_000; // the server waits up to 60 s for the check of a file

// Whether an error is about the sweep or the trial of the page itself.
const isOfPage = (where) => where === "sweep" || String(where).startsWith(`${document.body.dataset.sweep}-`);

export const EVERY_MS = 2_000;
export const RETRY_MS = 5_000;

// What the server has refused; `parts` has `where`, `must`, `got` and `remedy`.
export class Refused extends Error {
  constructor(status, parts) {
    super(parts?.detail ?? `The server has answered with status ${status}.`);
    this.status = status;
    this.parts = parts;
  }
}

export async function request(path, method = "GET", body = undefined, headers = {}) {
  const answer = await answered(path, {
    method,
    headers: method === "GET" ? headers : { ...CHANGE, ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (answer.status === 401 && location.pathname !== "/sign-in") {
    sessionStorage.setItem(NEXT, location.pathname + location.search);
    location.assign("/sign-in");
    return new Promise(() => {}); // nothing of this page goes on
  }
  const isDocument = (answer.headers.get("content-type") ?? "").includes("json");
  const found = isDocument ? await answer.json() : null;
  if (!answer.ok || !isDocument) throw new Refused(answer.status, found);
  return found;
}

async function answered(path, options) {
  try {
    return await fetch(`/api/v1${path}`, options);
  } catch (error) {
    const isLate = error.name === "TimeoutError";
    throw new Error(isLate ? "The server has not answered in time." : "The server cannot be reached.", { cause: error });
  }
}

// Runs an action of the user; shows why it is refused.
export async function showProblem(action) {
  show("problem", "");
  try {
    return await action();
  } catch (error) {
    show("problem", error.message);
    return undefined;
  }
}

// Returns a function that asks for a reading. Readings follow each other, at least `every` ms apart; one that
// fails is shown and repeated. A hidden page reads nothing.
export function refresher(read, every = EVERY_MS) {
  let isBusy = false;
  let isAsked = false;

  async function refresh() {
    if (document.hidden) return;
    if (isBusy) {
      isAsked = true;
      return;
    }
    isBusy = true;
    let pause = every;
    try {
      await read();
      show("refresh-problem", "");
    } catch (error) {
      if (error.status === 404 && isOfPage(error.parts?.where)) {
        showMissing(request);
        return; // what does not exist is not read again
      }
      show("refresh-problem", error.message);
      announce("refresh", error.message);
      isAsked = true;
      pause = RETRY_MS;
    }
    setTimeout(() => {
      isBusy = false;
      if (!isAsked) return;
      isAsked = false;
      refresh();
    }, pause);
  }

  return refresh;
}

// Waits for all parts of a page, so that one that fails leaves the others; then raises the first problem.
export async function all(parts) {
  const failed = (await Promise.allSettled(parts)).find((part) => part.status === "rejected");
  if (failed) throw failed.reason;
}

export async function signedIn() {
  const user = await request("/me");
  show("user", `${user.name} (${user.role})`);
  element("start-link").hidden = user.role === "viewer";
  const out = element("sign-out");
  out.hidden = false;
  out.addEventListener("click", async () => {
    const { provider } = await request("/session", "DELETE");
    location.assign(provider ?? "/sign-in"); // the provider leads back to it
  });
  return user;
}

// Whether a user may change a sweep of an owner.
export const owns = (user, owner) => user.role === "admin" || (user.role === "member" && owner === user.name);

// The page that has asked for a token.
export function nextPage() {
  const next = sessionStorage.getItem(NEXT) ?? "/";
  sessionStorage.removeItem(NEXT);
  return next;
}
