/** The Sweep page: which sweep is shown, and along which setting, live in the address. */

import { changeView, readView } from "../base/view.mjs";

/**
 * @param {string | null} sweep its id
 * @param {string | null} along the setting of the slice
 * @returns {unknown}
 */
function choose(sweep, along) {
  const view = readView();
  if (!sweep || (sweep === view.sweep && along === view.along)) return "";
  changeView({ sweep, along: along ?? null });
  return "";
}

export const callbacks = { choose };
