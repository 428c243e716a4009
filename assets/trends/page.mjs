/** The Trends page: which series of jobs is shown lives in the address. */

import { changeView, isFilledIn, readView } from "../base/view.mjs";

/**
 * @param {string | null} series its name
 * @param {[string] | null} filled the same as the server filled it in
 * @returns {unknown}
 */
function choose(series, filled) {
  if (series && series !== readView().series) {
    changeView({ series }, { replace: isFilledIn(filled, [series]) });
  }
  return "";
}

export const callbacks = { choose };
