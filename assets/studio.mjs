/** The one module Dash lists. It imports all others and gives the loader the callbacks of each page. */

import { bringCallbacks, showTests } from "./base/dash.mjs";
import * as view from "./base/view.mjs";

bringCallbacks({});
showTests({ view });
