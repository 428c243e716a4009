/** The Sweep page: which sweep is shown, and along which setting, live in the address. */

import { changeView, isFilledIn, readView } from "../base/view.mjs";

/**
 * @param {string | null} sweep its id
 * @param {string | null} along the setting of the slice
 * @param {string[] | null} filled the same as the server filled it in
 * @returns {unknown}
 */
function choose(sweep, along, filled) {
  const view = readView();
  if (!sweep || (sweep === view.sweep && along === view.along)) return "";
  changeView({ sweep, along: along ?? null }, { replace: isFilledIn(filled, [sweep, along]) });
  return "";
}

export const callbacks = { choose };
