/** The one module Dash lists. It imports all others and gives the loader the callbacks of each page. */

import * as format from "./base/format.mjs";
import { unpack } from "./base/packed.mjs";
import { pageTimers } from "./base/timers.mjs";
import * as view from "./base/view.mjs";

export const callbacks = {};

window.studio = { callbacks, view, format, unpack, pageTimers };
window.studioLoader.ready(callbacks);
