// The page of an error: it shows no data and needs no user, who may have yet to sign in.

import { element } from "./shown.js";

element("connection").hidden = true;
