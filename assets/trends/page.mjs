/** The Trends page: which series of jobs is shown lives in the address. */

import { changeView, readView } from "../base/view.mjs";

/**
 * @param {string | null} series its name
 * @returns {unknown}
 */
function choose(series) {
  if (series && series !== readView().series) changeView({ series });
  return "";
}

export const callbacks = { choose };
