/** The Explain page: its choices live in the address. */

import { changeView } from "../base/view.mjs";

/**
 * @param {string | null} collective
 * @param {string} size
 * @param {string | null} system
 * @param {string} npus
 * @param {string} ranks
 * @returns {unknown}
 */
function choose(collective, size, system, npus, ranks) {
  changeView({ collective, size: size || null, system, npus: npus || null, ranks: ranks || null });
  return "";
}

export const callbacks = { choose };
