/** The Explain page: its choices live in the address. */

import { changeView, isFilledIn } from "../base/view.mjs";

/**
 * @param {string | null} collective
 * @param {string} size
 * @param {string | null} system
 * @param {string} npus
 * @param {string} ranks
 * @param {string[] | null} filled the same as the server filled it in
 * @returns {unknown}
 */
function choose(collective, size, system, npus, ranks, filled) {
  const patch = { collective, size: size || null, system, npus: npus || null, ranks: ranks || null };
  changeView(patch, { replace: isFilledIn(filled, [collective, size, system, npus, ranks]) });
  return "";
}

export const callbacks = { choose };
