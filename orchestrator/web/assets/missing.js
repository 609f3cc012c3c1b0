// What a page shows in place of a sweep or a trial that does not exist: the way to those that do.

import { element } from "./shown.js";

const MOST_READ = 1000;
const MOST_SHOWN = 3;

export async function showMissing(request) {
  const { sweep, trial } = document.body.dataset;
  const { sweeps } = await request(`/sweeps?limit=${MOST_READ}`);
  const isKnown = sweeps.some(({ id }) => id === sweep);
  const ids = isKnown ? [sweep] : similar(sweep, sweeps.map(({ id }) => id));
  const title = document.createElement("h1");
  title.textContent = isKnown ? `Sweep ${sweep} has no trial ${trial}` : `There is no sweep ${sweep}`;
  const lead = document.createElement("p");
  lead.textContent = isKnown ? "Its trials:" : ids.length ? "The most similar sweeps:" : "No sweep has run yet.";
  const list = document.createElement("ul");
  list.id = "similar";
  for (const [address, text] of [...ids.map((id) => [`/sweeps/${encodeURIComponent(id)}`, id]), ["/", "All sweeps"]]) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = address;
    link.textContent = text;
    item.append(link);
    list.append(item);
  }
  document.title = title.textContent;
  element("content").replaceChildren(title, lead, list);
}

// The ids that share the most pairs of neighbouring letters with a text: Dice's coefficient of bigrams.
export function similar(text, ids) {
  const pairs = (word) => new Set([...word.toLowerCase()].map((letter, index, all) => letter + (all[index + 1] ?? "")));
  const wanted = pairs(text);
  const likeness = (id) => {
    const own = pairs(id);
    return (2 * wanted.intersection(own).size) / (wanted.size + own.size);
  };
  return ids.map((id) => [likeness(id), id]).toSorted(([one], [other]) => other - one).slice(0, MOST_SHOWN).map(([, id]) => id);
}
