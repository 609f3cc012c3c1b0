// The note, the tags and the mark of a sweep or a trial, which are changed in place.

import { request } from "./requests.js";
import { ago, announce, element, show } from "./shown.js";
import { anchor } from "./tables.js";

const NONE = { text: "", tags: [], favourite: false };

export function favouriteMark() {
  const mark = document.createElement("span");
  mark.className = "favourite";
  mark.title = "favourite";
  mark.textContent = " ★";
  return mark;
}

// A tag, which leads to the sweeps that have it, with a button that removes it if there is a function for that.
export function tagChip(tag, remove = null) {
  const chip = document.createElement("span");
  chip.className = "tag";
  chip.append(anchor(`/?${new URLSearchParams({ tag, mine: "off" })}`, tag));
  if (remove === null) return chip;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "×";
  button.setAttribute("aria-label", `Remove the tag ${tag}`);
  button.addEventListener("click", remove);
  chip.append(button);
  return chip;
}

// Returns a function that shows a note, or null for none, and whether the user may change it.
//
// path: address of the note in the API.
export function notes(path) {
  let shown = NONE;
  let mayChange = false;
  let written = null;

  function showNote(note, isAllowed) {
    shown = note ?? NONE;
    mayChange = isAllowed;
    const now = JSON.stringify([shown.tags, shown.favourite, shown.text, shown.at, mayChange]);
    if (now === written) return; // keeps focus and selection
    written = now;
    element("note-menu").hidden = !mayChange;
    element("favourite").hidden = !mayChange;
    element("favourite").ariaPressed = String(shown.favourite);
    show("favourite", shown.favourite ? "★" : "☆");
    element("is-favourite").hidden = mayChange || !shown.favourite;
    element("is-favourite").replaceChildren(favouriteMark());
    element("tags").replaceChildren(...shown.tags.flatMap((tag) => [tagChip(tag, mayChange ? () => removed(tag) : null), " "]));
    show("note-text", shown.text); // as text: neither Markdown nor HTML is interpreted
    element("note-by").replaceChildren(...(shown.text ? [`${shown.author}, `, ago(shown.at)] : []));
  }

  async function changed(change, done) {
    show("note-problem", "");
    try {
      showNote(await request(path, "PATCH", change), mayChange);
      announce("note", done);
      return true;
    } catch (error) {
      element("note-menu").open = true; // where the problem is
      show("note-problem", error.message);
      return false;
    }
  }

  async function removed(tag) {
    if (await changed({ remove: [tag] }, `Tag ${tag} removed`)) element("note-menu").querySelector("summary").focus();
  }

  function close() {
    element("note-menu").open = false;
    element("note-menu").querySelector("summary").focus();
  }

  async function save() {
    if (await changed({ text: element("note-draft").value }, "Note saved")) close();
  }

  element("favourite").addEventListener("click", () => {
    const favourite = !shown.favourite;
    changed({ favourite }, favourite ? "Marked as a favourite" : "No longer a favourite");
  });
  element("note-menu").addEventListener("toggle", () => {
    if (element("note-menu").open) element("note-draft").value = shown.text;
  });
  element("note-menu").addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && event.ctrlKey && event.target === element("note-draft")) save();
  });
  element("note-cancel").addEventListener("click", close);
  element("edit-note").addEventListener("submit", (event) => {
    event.preventDefault();
    save();
  });
  element("add-tag").addEventListener("submit", async (event) => {
    event.preventDefault();
    const tag = element("tag").value.trim();
    if (await changed({ add: [tag] }, `Tag ${tag} added`)) element("tag").value = "";
  });
  return showNote;
}
