/** The one module Dash lists. It imports all others and gives the loader the callbacks of each page. */

import { bringCallbacks, showTests } from "./base/dash.mjs";
import * as view from "./base/view.mjs";
import { nodesCallbacks } from "./nodes/page.mjs";

bringCallbacks({ studio_nodes: nodesCallbacks });
showTests({ view });

/* Until frame/ is a module: frame.js publishes the view. */
view.onViewChange(() => window.dispatchEvent(new PopStateEvent("popstate")));
