// Questions before a change that interrupts the work of others.

import { element, show } from "./shown.js";

// Asks, and returns whether the user agrees; Escape and the first button do not.
export function confirmed(question, action) {
  const dialog = element("confirm");
  show("confirm-question", question);
  show("confirm-yes", action);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
