import { nextPage, request, showProblem } from "./requests.js";
import { element } from "./shown.js";

element("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const user = await showProblem(() => request("/session", "POST", { token: element("token").value }));
  if (user) location.assign(nextPage());
});
