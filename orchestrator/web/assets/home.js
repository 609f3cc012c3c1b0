import { element, fill, link, request, showProblem, signedIn, time, watch } from "./shared.js";

const counts = (trials) => Object.entries(trials).map(([state, count]) => `${count} ${state.toLowerCase()}`).join(", ");

function start(entry) {
  if (!entry.position) return null;
  return entry.expected_start === null ? "unknown" : time(entry.expected_start);
}

function paint(entries) {
  const queue = entries.get("queue") ?? [];
  element("queue-empty").hidden = queue.length > 0;
  fill(element("queue"), queue, (entry) => entry.sweep, (entry) => [
    entry.position, link(entry.sweep), entry.owner, entry.priority_class,
    entry.share, entry.running, entry.wanted, start(entry), entry.why,
  ]);
  const sweeps = [...entries].filter(([name]) => name !== "queue").map(([, sweep]) => sweep);
  sweeps.sort((one, other) => other.created_at - one.created_at);
  fill(element("sweeps"), sweeps, (sweep) => sweep.id, (sweep) => [
    link(sweep.id), sweep.state, sweep.task, sweep.owner, counts(sweep.trials), time(sweep.created_at), sweep.reason,
  ]);
}

element("submit").addEventListener("submit", async (event) => {
  event.preventDefault();
  const body = { name: element("name").value, text: element("text").value };
  const submitted = await showProblem(() => request("/sweeps", "POST", body));
  if (submitted) location.assign(`/sweeps/${encodeURIComponent(submitted.id)}`);
});

const user = await signedIn();
element("submit-section").hidden = user.role === "viewer";
watch("/events", paint);
