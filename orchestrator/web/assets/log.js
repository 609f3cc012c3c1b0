// A log that is read as it grows, while its section is open.

import { request } from "./requests.js";
import { element, plural } from "./shown.js";

const EVERY_MS = 5_000;
const MOST_CHARACTERS = 500_000;

const FRAME = /^\s*File "(?<path>[^"]+)", line \d+/;
const OWN = /[\\/](?:orchestrator|site-packages[\\/]ray)[\\/]/; // of the service and of Ray
const CODE = /^ {4,}/; // under a frame: its line of code, and marks under that

// Returns the parts of a log: text, and the frames of tracebacks that are not of the user's code, folded.
function parts(text) {
  const found = [];
  let [isFrame, isOwn] = [false, false];
  for (const line of text.match(/.*\n|.+$/g) ?? []) {
    const path = FRAME.exec(line)?.groups.path;
    isFrame = path !== undefined || (isFrame && CODE.test(line));
    isOwn = isFrame && (path === undefined ? isOwn : OWN.test(path));
    if (found.at(-1)?.isOwn !== isOwn) found.push({ isOwn, text: "", frames: 0 });
    const last = found.at(-1);
    last.text += line;
    if (path !== undefined) last.frames += 1;
  }
  return found.map((part) => (part.isOwn ? folded(part) : part.text));
}

function folded({ text, frames }) {
  const section = document.createElement("details");
  const title = document.createElement("summary");
  title.textContent = `${plural(frames, "frame")} of the service`;
  section.append(title, text);
  return section;
}

// What is new is appended, so that a selection stays.
export function followLog(path) {
  const section = element("log-section");
  const shown = element("log");
  const problem = element("log-problem");
  let end = null;
  let isReading = false;

  async function read() {
    if (!section.open || document.hidden || isReading) return;
    isReading = true;
    try {
      const part = await request(end === null ? path : `${path}${path.includes("?") ? "&" : "?"}start=${end}`);
      const isAtEnd = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 5;
      if (part.size < (end ?? 0)) shown.textContent = ""; // the log has started again
      if (part.text) shown.append(...parts(part.text));
      end = part.end;
      while (shown.textContent.length > MOST_CHARACTERS && shown.childNodes.length > 1) shown.firstChild.remove();
      if (isAtEnd) shown.scrollTop = shown.scrollHeight;
      problem.className = "empty";
      problem.textContent = part.size ? "" : part.note ?? "No log yet.";
    } catch (error) {
      problem.className = error.status === 404 ? "empty" : "problem"; // a trial without a log is ordinary
      problem.textContent = error.status === 404 ? `No log. ${error.parts?.remedy ?? ""}` : error.message;
    } finally {
      isReading = false;
    }
  }

  section.addEventListener("toggle", read);
  setInterval(read, EVERY_MS);
}
