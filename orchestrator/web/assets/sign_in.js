import { nextPage, request, showProblem } from "./requests.js";
import { element } from "./shown.js";

async function signIn(token) {
  const user = await showProblem(() => request("/session", "POST", { token }).catch((error) => {
    if (error.status !== 401) throw error;
    throw new Error("This token is unknown or has expired. Ask an admin for a new one.", { cause: error });
  }));
  if (user) location.assign(nextPage());
}

if (location.search === "?signed-on") location.replace(nextPage()); // the provider has sent the browser back

const key = location.hash.slice(1);
if (key) {
  history.replaceState(null, "", location.pathname + location.search); // it works once: keep it out of the history
  signIn(key);
}

element("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  await signIn(element("token").value);
});
